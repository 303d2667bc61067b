package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/admin"
)

// A mux takes handlers that everybody may call; *admin.Server is one.
type mux interface {
	Open(pattern string, h http.Handler)
}

// Health registers the health answers of a process with these campaigns, which may be none. Load
// balancers ask them as they ask Patroni's; docs/sidecar.md says what each means. Campaigns know
// whether the election backend answers; where there is none, answers reports it. ending reports
// whether the process takes no new sessions.
func Health(to mux, campaigns []*Campaign, answers func(context.Context) bool, ending func() bool) {
	for path, ok := range map[string]func(Status) bool{
		"/leader":     func(s Status) bool { return s.Leads },
		"/primary":    func(s Status) bool { return s.Leads },
		"/read-write": func(s Status) bool { return s.Ready },
		"/replica":    func(s Status) bool { return !s.Leads && s.Healthy },
		"/read-only":  func(s Status) bool { return s.Leads || s.Healthy },
	} {
		both(to, path, func(w http.ResponseWriter, r *http.Request) {
			c, e := pick(campaigns, r)
			if e != nil {
				admin.WriteError(w, e)
				return
			}
			s := c.Status()
			answer(w, ok(s) && !ending(), describe(c, s, ending()))
		})
	}
	whole := func(r *http.Request, asks bool) (process, bool) {
		healthy, all := true, []state{}
		for _, c := range campaigns {
			s := c.Status()
			healthy = healthy && (s.Healthy || s.Leads)
			all = append(all, describe(c, s, ending()))
		}
		if asks && len(campaigns) == 0 {
			healthy = answers(r.Context())
		}
		return process{State: word(ending()), Elections: all}, healthy
	}
	both(to, "/health", func(w http.ResponseWriter, r *http.Request) {
		p, healthy := whole(r, true)
		p.Healthy = &healthy
		answer(w, healthy, p)
	})
	both(to, "/readiness", func(w http.ResponseWriter, r *http.Request) {
		p, healthy := whole(r, true)
		p.Healthy = &healthy
		answer(w, healthy && !ending(), p)
	})
	both(to, "/liveness", func(w http.ResponseWriter, r *http.Request) {
		p, _ := whole(r, false) // it answers, and asks nobody
		answer(w, true, p)
	})
}

// both registers GET, which HEAD is part of, and OPTIONS, which is HEAD.
func both(to mux, path string, h http.HandlerFunc) {
	to.Open("GET "+path, h)
	to.Open("OPTIONS "+path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", "GET, HEAD, OPTIONS")
		h(bodiless{w}, r)
	}))
}

// bodiless leaves the body of an answer out.
type bodiless struct{ http.ResponseWriter }

func (b bodiless) Write(p []byte) (int, error) { return len(p), nil }

// Unwrap is for http.ResponseController.
func (b bodiless) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// pick returns the campaign that a request is about.
func pick(all []*Campaign, r *http.Request) (*Campaign, *admin.Error) {
	id := r.URL.Query().Get("election")
	switch {
	case len(all) == 0:
		return nil, &admin.Error{Status: http.StatusServiceUnavailable, Code: "no-election", Message: "no listener of this proxy campaigns in an election",
			Hint: "Set elect on a listener."}
	case id == "" && len(all) == 1:
		return all[0], nil
	case id == "":
		ids := make([]string, len(all))
		for i, c := range all {
			ids[i] = c.Election()
		}
		return nil, &admin.Error{Code: "election-needed", Message: "listeners of this proxy campaign in several elections: say which",
			Hint: "Ask with ?election= and one of: " + strings.Join(ids, ", ") + "."}
	}
	if i := slices.IndexFunc(all, func(c *Campaign) bool { return c.Election() == id }); i >= 0 {
		return all[i], nil
	}
	return nil, &admin.Error{Status: http.StatusNotFound, Code: "unknown-election", Message: fmt.Sprintf("no listener of this proxy campaigns in election %q", id)}
}

// A state is what is told of one election.
type state struct {
	Election string `json:"election"`
	State    string `json:"state"`
	Role     string `json:"role"`
	Ready    bool   `json:"ready"`
	Healthy  bool   `json:"healthy"`
	// Owner is this candidate's name. Leader and Number are of the term that rules, as far
	// as is known.
	Owner  string `json:"owner"`
	Leader string `json:"leader"`
	Number int64  `json:"number"`
}

type process struct {
	State string `json:"state"`
	// Healthy says that the election backend answers; nil where that is not the question.
	Healthy   *bool   `json:"healthy,omitempty"`
	Elections []state `json:"elections"`
}

func describe(c *Campaign, s Status, ending bool) state {
	role := "replica"
	if s.Leads {
		role = "leader"
	}
	return state{Election: c.Election(), State: word(ending), Role: role, Ready: s.Ready, Healthy: s.Healthy || s.Leads,
		Owner: s.Owner, Leader: s.Leader, Number: s.Number}
}

func word(ending bool) string {
	if ending {
		return "ending"
	}
	return "running"
}

func answer(w http.ResponseWriter, ok bool, v any) {
	status := http.StatusServiceUnavailable
	if ok {
		status = http.StatusOK
	}
	admin.WriteJSON(w, status, v)
}
