package electionapi

import (
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/admin"
)

// beatEvery is the time between two lines of a stream in which nothing changes. They show a
// caller that the stream lives, and the proxy that the caller does.
const beatEvery = 10 * time.Second

// A Route is one path of the API, as http.ServeMux reads it.
type Route struct {
	Pattern string
	Handler http.Handler
}

// Routes are the API's. Each needs authentication, which is the server's to see to.
func (s *Service) Routes() []Route {
	on := func(pattern string, f func(w http.ResponseWriter, r *http.Request, id string) (answer, *Problem)) Route {
		return Route{pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := r.PathValue("election")
			p := checkID(id)
			var a answer
			if p == nil {
				a, p = f(w, r, id)
			}
			switch {
			case p != nil:
				p.write(w)
			case a != nil:
				admin.WriteJSON(w, http.StatusOK, a)
			}
		})}
	}
	return []Route{
		on("POST /v1/elections/{election}/acquire", s.httpAcquire),
		on("POST /v1/elections/{election}/renew", s.httpRenew),
		on("POST /v1/elections/{election}/resign", s.httpResign),
		on("POST /v1/elections/{election}/validate", s.httpValidate),
		on("GET /v1/elections/{election}", func(_ http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
			if r.URL.RawQuery != "" {
				return nil, noParameters()
			}
			return s.status(r.Context(), id)
		}),
		on("GET /v1/elections/{election}/watch", s.httpWatch),
		on("GET /v1/elections/{election}/stream", s.httpStream),
	}
}

// The bodies of requests. An answer and a problem that are both nil say that ReadJSON
// has answered.

func (s *Service) httpAcquire(w http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
	var b struct {
		Owner      string `json:"owner"`
		TTL        int64  `json:"ttl_ms"`
		Token      string `json:"token"`
		MinFencing int64  `json:"min_fencing"`
	}
	if !admin.ReadJSON(w, r, &b) {
		return nil, nil
	}
	return s.acquire(r.Context(), id, acquisition{owner: b.Owner, token: b.Token, ttl: b.TTL, fencing: b.MinFencing}, remote(r))
}

func (s *Service) httpRenew(w http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
	var b struct {
		Token string `json:"token"`
	}
	if !admin.ReadJSON(w, r, &b) {
		return nil, nil
	}
	return s.renew(r.Context(), id, b.Token)
}

func (s *Service) httpResign(w http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
	var b struct {
		Token   string `json:"token"`
		HoldOff int64  `json:"hold_off_ms"`
	}
	if !admin.ReadJSON(w, r, &b) {
		return nil, nil
	}
	return s.resign(r.Context(), id, b.Token, b.HoldOff)
}

func (s *Service) httpValidate(w http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
	var b struct {
		Token string `json:"token"`
	}
	if !admin.ReadJSON(w, r, &b) {
		return nil, nil
	}
	return s.validate(r.Context(), id, b.Token)
}

func (s *Service) httpWatch(_ http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid("the query of the URL is malformed")
	}
	var number *int64
	wait := DefaultWatch
	for name, values := range q {
		n, err := strconv.ParseInt(values[0], 10, 64)
		switch {
		case name != "number" && name != "timeout_ms":
			return nil, invalid("a parameter is unknown: there are number and timeout_ms")
		case len(values) > 1:
			return nil, invalid("the parameter " + name + " is given twice")
		case err != nil || n < 0:
			return nil, invalid("the parameter " + name + " must be a whole number, and not negative")
		case name == "number":
			number = &n
		default:
			var p *Problem
			if wait, p = watchTime(n); p != nil {
				return nil, p
			}
		}
	}
	return s.watch(r.Context(), id, number, wait)
}

func noParameters() *Problem { return invalid("a parameter is unknown: there are none here") }

// watchTime reads how long a watch may wait; what is longer than is taken is shortened.
func watchTime(ms int64) (time.Duration, *Problem) {
	if ms < 0 {
		return 0, invalid("the time-out of a watch must not be negative")
	}
	return time.Duration(min(ms, MaxWatch.Milliseconds())) * time.Millisecond, nil
}

func (s *Service) httpStream(w http.ResponseWriter, r *http.Request, id string) (answer, *Problem) {
	if r.URL.RawQuery != "" {
		return nil, noParameters()
	}
	var st *admin.Stream
	p := s.stream(r.Context(), id, beatEvery, func(a answer) error {
		if st == nil {
			st = admin.NewStream(w)
		}
		return st.Send(a)
	})
	return nil, p
}

// remote is where a request comes from.
func remote(r *http.Request) net.Addr {
	if a, err := net.ResolveTCPAddr("tcp", r.RemoteAddr); err == nil && a.IP != nil {
		return a
	}
	return &net.UnixAddr{}
}
