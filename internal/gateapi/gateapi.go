// Package gateapi has the faces of guard.Gate for programs in any language: HTTP on the admin
// listener, and FENCE GATE on listeners for Redis. Consumers bind partitions, keep them, and
// hear of their loss.
//
// It promises that no consumer is told to trust a binding longer than the gate does,
// however long an answer is under way: times are counted from when the request came, and a
// consumer counts from before it sent it. A binding whose consumer is gone is released
// only when the last time that it was told is over. Tokens come in bodies alone, and are
// never answered.
package gateapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/admin"
)

// Config says how bindings are kept.
type Config struct {
	// Grace is how long a binding outlives the last word of its consumer, by the gate's name;
	// zero means the gate's PermitFor.
	Grace map[string]time.Duration
	// MaxStream is how long one stream goes on before its consumer has to ask again, so that
	// the difference between two clocks' speeds stays below a gate's margin; zero means
	// DefaultMaxStream.
	MaxStream time.Duration
}

// DefaultMaxStream is how long one stream goes on.
const DefaultMaxStream = 10 * time.Minute

// maxWait bounds how long a bind waits for an older consumer.
const maxWait = time.Minute

// waitBounds are the bounds of a wait in words.
const waitBounds = "1 to 60000 milliseconds"

// An API serves gates by their names. Close it.
type API struct {
	gates map[string]*guard.Gate
	names []string
	c     Config
	ctx   context.Context //nolint:containedctx // of the API's life: bindings outlive requests
	stop  context.CancelFunc

	mu      sync.Mutex
	kept    map[string]*kept // by binding id
	closed  bool
	running sync.WaitGroup
}

// New serves gates. Their names are those of their configuration. Close the API before them.
func New(gates []*guard.Gate, c Config) *API {
	if c.MaxStream == 0 {
		c.MaxStream = DefaultMaxStream
	}
	a := &API{gates: make(map[string]*guard.Gate), kept: make(map[string]*kept), c: c}
	a.ctx, a.stop = context.WithCancel(context.Background())
	for _, g := range gates {
		a.gates[g.Config().Name] = g
		a.names = append(a.names, g.Config().Name)
	}
	return a
}

// Close stops keeping bindings, which then end with their gates, and waits.
func (a *API) Close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.stop()
	a.running.Wait()
}

// Register puts the API's handlers on the admin listener.
func (a *API) Register(s *admin.Server) {
	for pattern, h := range a.routes() {
		s.API(pattern, h)
	}
}

func (a *API) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /v1/gates":        a.list,
		"GET /v1/gates/{gate}": a.gate(a.show),
		"POST /v1/gates/{gate}/partitions/{partition}/bind": a.gate(a.bind),
		"GET /v1/gates/{gate}/bindings/{binding}/keep":      a.gate(a.stream),
		"POST /v1/gates/{gate}/bindings/{binding}/keep":     a.gate(a.keep),
		"DELETE /v1/gates/{gate}/bindings/{binding}":        a.gate(a.release),
	}
}

// gate finds the gate that a path names.
func (a *API) gate(h func(http.ResponseWriter, *http.Request, *guard.Gate)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g := a.gates[r.PathValue("gate")]
		if g == nil {
			admin.WriteError(w, &admin.Error{Status: http.StatusNotFound, Code: "unknown-gate",
				Message: "there is no such gate here", Hint: "The gates are: " + strings.Join(a.names, ", ") + "."})
			return
		}
		h(w, r, g)
	}
}

func (a *API) list(w http.ResponseWriter, _ *http.Request) {
	type gate struct {
		Name     string `json:"name"`
		Election string `json:"election"`
		Bindings int    `json:"bindings"`
		Max      int    `json:"max"`
	}
	out := struct {
		Gates []gate `json:"gates"`
	}{[]gate{}}
	for _, name := range a.names {
		g := a.gates[name]
		out.Gates = append(out.Gates, gate{name, g.Config().Election, len(g.List()), g.Config().Max})
	}
	admin.WriteJSON(w, http.StatusOK, out)
}

// A binding as it is shown to whoever asks. It does not hold the id, which is its consumer's.
type binding struct {
	Partition string     `json:"partition"`
	Election  string     `json:"election"`
	Owner     string     `json:"owner"`
	Number    int64      `json:"number"`
	State     string     `json:"state"` // claiming, live or ended
	Since     *time.Time `json:"since,omitempty"`
	TrustedMS int64      `json:"trusted_ms"`
}

func (a *API) show(w http.ResponseWriter, _ *http.Request, g *guard.Gate) {
	c, now := g.Config(), time.Now()
	out := struct {
		Name          string    `json:"name"`
		Election      string    `json:"election"`
		PermitMS      int64     `json:"permit_ms"`
		ValidateEvery int64     `json:"validate_every_ms"`
		Max           int       `json:"max"`
		Bindings      []binding `json:"bindings"`
	}{c.Name, c.Election, c.PermitFor.Milliseconds(), c.ValidateEvery.Milliseconds(), c.Max, []binding{}}
	for _, b := range g.List() {
		x := binding{Partition: b.Partition, Election: b.Election, Owner: b.Owner, Number: b.Number, State: "live"}
		switch {
		case b.Ended:
			x.State = "ended"
		case b.Since.IsZero():
			x.State = "claiming"
		default:
			x.TrustedMS = max(0, b.TrustedUntil.Sub(now).Milliseconds())
		}
		if !b.Since.IsZero() {
			x.Since = &b.Since
		}
		out.Bindings = append(out.Bindings, x)
	}
	admin.WriteJSON(w, http.StatusOK, out)
}

func (a *API) bind(w http.ResponseWriter, r *http.Request, g *guard.Gate) {
	came := time.Now()
	var in struct {
		Token  string `json:"token"`
		WaitMS *int64 `json:"wait_ms"`
	}
	if !admin.ReadJSON(w, r, &in) {
		return
	}
	t, e := tokenOf(in.Token)
	if e != nil {
		admin.WriteError(w, e)
		return
	}
	wait := 2 * g.Config().PermitFor
	if in.WaitMS != nil {
		if *in.WaitMS < 1 || *in.WaitMS > maxWait.Milliseconds() {
			admin.WriteError(w, invalid("wait_ms must be "+waitBounds))
			return
		}
		wait = time.Duration(*in.WaitMS) * time.Millisecond
	}
	k, until, e := a.bindFor(r.Context(), g, r.PathValue("partition"), t, wait)
	if e == nil && until.IsZero() {
		e = errorOf(k.b.Err())
		k.b.Release() // its consumer never hears of it
	}
	if e != nil {
		admin.WriteError(w, e)
		return
	}
	term := k.b.Term()
	admin.WriteJSON(w, http.StatusOK, struct {
		Binding string `json:"binding"`
		binding
	}{k.id, binding{
		Partition: k.b.Partition(), Election: term.Election, Owner: term.Owner, Number: term.Number,
		State: "live", TrustedMS: until.Sub(came).Milliseconds(),
	}})
}

// tokenOf reads a token.
func tokenOf(text string) (election.Token, *admin.Error) {
	t, err := election.ParseToken(text)
	if err != nil {
		return t, &admin.Error{Code: "invalid-token", Message: err.Error()}
	}
	return t, nil
}

// bindFor binds a partition for a consumer, waiting for an older one, and begins to keep the
// binding. The time is how long the consumer may be told to trust it; zero where it has ended.
func (a *API) bindFor(ctx context.Context, g *guard.Gate, partition string, t election.Token, wait time.Duration) (*kept, time.Time, *admin.Error) {
	ctx, cancel := context.WithTimeout(ctx, min(wait, maxWait))
	defer cancel()
	b, err := g.Bind(ctx, partition, t)
	if err != nil {
		return nil, time.Time{}, errorOf(err)
	}
	k, until, err := a.keepFrom(g, b)
	if err != nil {
		b.Release() // its consumer never hears of it
		return nil, time.Time{}, errorOf(err)
	}
	return k, until, nil
}

// keepFrom begins to keep a binding that was just made.
func (a *API) keepFrom(g *guard.Gate, b *guard.Binding) (*kept, time.Time, error) {
	k := &kept{id: rand.Text(), g: g, b: b, changed: make(chan struct{}, 1), grace: a.c.Grace[g.Config().Name]}
	if k.grace == 0 {
		k.grace = g.Config().PermitFor
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, time.Time{}, guard.ErrClosed
	}
	until := k.tell()
	a.kept[k.id] = k
	a.running.Go(func() {
		k.watch(a.ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.kept, k.id)
	})
	return k, until, nil
}

// find returns the kept binding that a path names, or answers that there is none.
func (a *API) find(w http.ResponseWriter, r *http.Request, g *guard.Gate) *kept {
	a.mu.Lock()
	k := a.kept[r.PathValue("binding")]
	a.mu.Unlock()
	if k == nil || k.g != g {
		admin.WriteError(w, &admin.Error{Status: http.StatusNotFound, Code: "unknown-binding",
			Message: "there is no such binding: it has ended, or another process made it",
			Hint:    "Stop working on the partition; bind again with the live token."})
		return nil
	}
	return k
}

// keep tells once how long the binding is trusted, counted from when the request came.
func (a *API) keep(w http.ResponseWriter, r *http.Request, g *guard.Gate) {
	came := time.Now()
	k := a.find(w, r, g)
	if k == nil {
		return
	}
	until := k.tell()
	if until.IsZero() {
		admin.WriteError(w, errorOf(k.b.Err()))
		return
	}
	admin.WriteJSON(w, http.StatusOK, struct {
		TrustedMS int64 `json:"trusted_ms"`
	}{until.Sub(came).Milliseconds()})
}

// stream tells again and again, and at once when the binding has ended.
func (a *API) stream(w http.ResponseWriter, r *http.Request, g *guard.Gate) {
	came := time.Now()
	k := a.find(w, r, g)
	if k == nil {
		return
	}
	k.listen(+1)
	defer k.listen(-1)
	s := admin.NewStream(w)
	every := time.NewTicker(g.Config().ValidateEvery)
	defer every.Stop()
	enough := time.NewTimer(a.c.MaxStream)
	defer enough.Stop()
	for {
		until := k.tell()
		if until.IsZero() {
			_ = s.Send(struct {
				Ended bool         `json:"ended"`
				Error *admin.Error `json:"error"`
			}{true, errorOf(k.b.Err())})
			return
		}
		if s.Send(struct {
			TrustedMS int64 `json:"trusted_ms"`
		}{until.Sub(came).Milliseconds()}) != nil {
			return
		}
		select {
		case <-every.C:
		case <-k.b.Done():
		case <-enough.C:
			_ = s.Send(again{true})
			return
		case <-r.Context().Done():
			// The consumer is gone, or the proxy stops, and its gates with it.
			select {
			case <-k.b.Done():
			case <-time.After(lastWord):
				_ = s.Send(again{true})
				return
			}
		}
	}
}

// lastWord is how long a stream waits for the end of its binding where the proxy stops.
const lastWord = 200 * time.Millisecond

// again ends a stream whose binding goes on.
type again struct {
	Again bool `json:"again"`
}

func (a *API) release(w http.ResponseWriter, r *http.Request, g *guard.Gate) {
	k := a.find(w, r, g)
	if k == nil {
		return
	}
	k.b.Release()
	free := true
	select {
	case <-k.b.Free():
	case <-r.Context().Done():
		free = false
	}
	admin.WriteJSON(w, http.StatusOK, struct {
		Released bool `json:"released"`
		Free     bool `json:"free"`
	}{true, free})
}
