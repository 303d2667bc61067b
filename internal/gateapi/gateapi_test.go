package gateapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/admin"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// pipes is a listener without a network, so that time may be fake.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

const secret = "0123456789abcdef"

// A rig is an admin listener with one gate, in a bubble of fake time.
type rig struct {
	t    *testing.T
	b    *memory.Backend
	gate *guard.Gate
	stop context.CancelFunc
	http http.Client
}

func inRig(t *testing.T, c Config, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, b: memory.New()}
		g, err := guard.NewGate(r.b, guard.GateConfig{Name: "orders", Election: "orders-{partition}"})
		if err != nil {
			t.Fatal(err)
		}
		r.gate = g
		a := New([]*guard.Gate{g}, c)
		s := admin.New(admin.Config{Token: secret})
		a.Register(s)
		l := pipes{make(chan net.Conn), make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		r.stop = stop
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			select {
			case l.conns <- theirs:
				return ours, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		r.http.Transport = tr
		f(t, r)
		stop()
		go g.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		a.Close()
		g.Close()
		tr.CloseIdleConnections()
		_ = r.b.Close()
	})
}

func (r *rig) do(ctx context.Context, method, path, body string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	res, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// An answer is whatever any of the calls answers.
type answer struct {
	Binding, Partition, Election, Owner, State string
	Number                                     int64
	TrustedMS                                  int64 `json:"trusted_ms"`
	Ended, Again, Released, Free               bool
	Bindings                                   []answer
	Gates                                      []struct{ Name string }
	Error                                      struct {
		Code, Message, Hint string
		Details             struct {
			Owner, Election string
			Number, Held    int64
		}
	}
}

func (r *rig) ask(method, path, body string, status int) answer {
	r.t.Helper()
	res := r.do(r.t.Context(), method, path, body)
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		r.t.Fatalf("%s %s: %q: %v", method, path, text, err)
	}
	if res.StatusCode != status {
		r.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	return a
}

func (r *rig) lead(owner string) election.AcquireResult {
	r.t.Helper()
	res, err := r.b.Acquire(r.t.Context(), "orders-7", election.AcquireOptions{Owner: owner, TTL: time.Hour})
	if err != nil || res.Status != election.Acquired {
		r.t.Fatalf("%+v, %v", res, err)
	}
	return res
}

func (r *rig) bind(held election.AcquireResult) answer {
	r.t.Helper()
	a := r.ask("POST", "/v1/gates/orders/partitions/7/bind", `{"token":"`+held.Token.Reveal()+`"}`, 200)
	if a.Binding == "" || a.Partition != "7" || a.Election != "orders-7" || a.Number != held.Number || a.Owner != held.Owner || a.TrustedMS < 4000 || a.TrustedMS > 4500 {
		r.t.Fatalf("%+v", a)
	}
	return a
}

// A stream is a keep that goes on.
type stream struct {
	r      *rig
	lines  *bufio.Reader
	cancel context.CancelFunc
}

func (r *rig) stream(id string) *stream {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	res := r.do(ctx, "GET", "/v1/gates/orders/bindings/"+id+"/keep", "")
	if res.StatusCode != 200 {
		r.t.Fatalf("%d", res.StatusCode)
	}
	r.t.Cleanup(func() { _ = res.Body.Close() })
	return &stream{r, bufio.NewReader(res.Body), cancel}
}

func (s *stream) next() (a answer) {
	s.r.t.Helper()
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		s.r.t.Fatalf("%q, %v", line, err)
	}
	if err := json.Unmarshal(bytes.TrimSpace(line), &a); err != nil {
		s.r.t.Fatalf("%q: %v", line, err)
	}
	return a
}

func TestBindKeepRelease(t *testing.T) {
	inRig(t, Config{}, func(t *testing.T, r *rig) {
		held := r.lead("worker-1")
		b := r.bind(held)
		again := r.ask("POST", "/v1/gates/orders/partitions/7/bind", `{"token":"`+held.Token.Reveal()+`"}`, 409)
		if again.Error.Code != "occupied" || again.Error.Details.Owner != "worker-1" || again.Error.Details.Number != held.Number ||
			!strings.Contains(again.Error.Message, "worker-1") || strings.Contains(again.Error.Message, held.Token.Reveal()) {
			t.Errorf("%+v", again.Error)
		}
		l := r.ask("GET", "/v1/gates/orders", "", 200)
		if len(l.Bindings) != 1 || l.Bindings[0].Owner != "worker-1" || l.Bindings[0].State != "live" || l.Bindings[0].Binding != "" {
			t.Errorf("%+v", l)
		}
		if g := r.ask("GET", "/v1/gates", "", 200); len(g.Gates) != 1 || g.Gates[0].Name != "orders" {
			t.Errorf("%+v", g)
		}

		came := time.Now()
		s := r.stream(b.Binding)
		for range 20 {
			a := s.next()
			if until := time.Duration(a.TrustedMS) * time.Millisecond; until < time.Since(came)+3*time.Second || until > time.Since(came)+4500*time.Millisecond {
				t.Fatalf("after %v: trusted until %v", time.Since(came), until)
			}
		}
		if _, err := r.b.Resign(t.Context(), "orders-7", held.Token, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		next := r.lead("worker-2")
		lost := time.Now()
		for {
			a := s.next()
			if !a.Ended {
				continue
			}
			if a.Error.Code != "stale" || a.Error.Details.Owner != "worker-2" || a.Error.Details.Number != next.Number || a.Error.Details.Held != held.Number {
				t.Errorf("%+v", a.Error)
			}
			break
		}
		if took := time.Since(lost); took > guard.DefaultValidateEvery {
			t.Errorf("told after %v", took)
		}
		if _, err := s.lines.ReadByte(); err != io.EOF {
			t.Errorf("after the last line: %v", err)
		}
		if a := r.ask("DELETE", "/v1/gates/orders/bindings/"+b.Binding, "", 200); !a.Released || !a.Free {
			t.Errorf("%+v", a)
		}
		c := r.bind(next) // at once
		if time.Since(lost) > guard.DefaultValidateEvery {
			t.Errorf("bound after %v", time.Since(lost))
		}
		if a := r.ask("POST", "/v1/gates/orders/bindings/"+c.Binding+"/keep", "", 200); a.TrustedMS < 4000 {
			t.Errorf("%+v", a)
		}
		r.ask("DELETE", "/v1/gates/orders/bindings/"+c.Binding, "", 200)
		if a := r.ask("GET", "/v1/gates/orders/bindings/"+c.Binding+"/keep", "", 404); a.Error.Code != "unknown-binding" {
			t.Errorf("%+v", a)
		}
	})
}

// A consumer that is gone keeps its partition for the grace, and until the last time that
// it was told is over.
func TestAConsumerThatIsGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		by     time.Duration // latest end after the last word
	}{
		{"the permit", Config{}, 5 * time.Second},
		{"a short grace does not cut the trust", Config{Grace: map[string]time.Duration{"orders": time.Millisecond}}, 5 * time.Second},
		{"a long grace", Config{Grace: map[string]time.Duration{"orders": time.Minute}}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRig(t, c.config, func(t *testing.T, r *rig) {
				held := r.lead("worker-1")
				b := r.bind(held)
				came := time.Now()
				s := r.stream(b.Binding)
				for range 60 { // longer than any grace
					s.next()
				}
				told := came.Add(time.Duration(s.next().TrustedMS) * time.Millisecond)
				s.cancel()
				gone := time.Now()
				for len(r.gate.List()) > 0 {
					time.Sleep(200 * time.Millisecond)
				}
				if time.Now().Before(told) {
					t.Errorf("free %v before the end that the consumer was told", time.Until(told))
				}
				if took := time.Since(gone); took > c.by+time.Second || took < c.config.Grace["orders"] {
					t.Errorf("free after %v", took)
				}
				n := r.bind(held)
				r.ask("DELETE", "/v1/gates/orders/bindings/"+n.Binding, "", 200)
			})
		})
	}
}

func TestStreamsEnd(t *testing.T) {
	inRig(t, Config{MaxStream: 3 * time.Second}, func(t *testing.T, r *rig) {
		b := r.bind(r.lead("worker-1"))
		s := r.stream(b.Binding)
		for !s.next().Again {
		}
		s = r.stream(b.Binding) // the binding goes on
		s.next()
		r.stop()
		go r.gate.Close()
		for {
			if a := s.next(); a.Ended {
				if a.Error.Code != "binding-lost" {
					t.Errorf("%+v", a)
				}
				break
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	inRig(t, Config{}, func(t *testing.T, r *rig) {
		tok := election.NewToken().Reveal()
		for _, c := range []struct {
			method, path, body string
			status             int
			code               string
		}{
			{"POST", "/v1/gates/other/partitions/7/bind", `{}`, 404, "unknown-gate"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{"token":"short"}`, 400, "invalid-token"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{}`, 400, "invalid-token"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{"tokn":"x"}`, 400, "bad-json"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{"token":"` + tok + `","wait_ms":-1}`, 400, "invalid-argument"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{"token":"` + tok + `","wait_ms":60001}`, 400, "invalid-argument"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{"token":"` + tok + `","wait_ms":60000}`, 409, "vacant"},
			{"POST", "/v1/gates/orders/partitions/7/bind", `{"token":"` + tok + `"}`, 409, "vacant"},
			{"POST", "/v1/gates/orders/partitions/a%2Fb/bind", `{"token":"` + tok + `"}`, 400, "invalid-partition"},
			{"POST", "/v1/gates/orders/partitions/a%0Ab/bind", `{"token":"` + tok + `"}`, 400, "invalid-partition"},
			{"POST", "/v1/gates/orders/partitions/" + strings.Repeat("x", 129) + "/bind", `{"token":"` + tok + `"}`, 400, "invalid-partition"},
			{"POST", "/v1/gates/orders/bindings/x/keep", ``, 404, "unknown-binding"},
			{"DELETE", "/v1/gates/orders/bindings/x", ``, 404, "unknown-binding"},
		} {
			a := r.ask(c.method, c.path, c.body, c.status)
			if a.Error.Code != c.code || strings.Contains(a.Error.Message, tok) || strings.Contains(a.Error.Hint, "writ") ||
				c.code == "vacant" && !strings.HasPrefix(a.Error.Hint, "Stop working on the partition") {
				t.Errorf("%s %s: %+v", c.method, c.path, a.Error)
			}
		}
	})
}

// Every code stands in the documentation.
func TestCodesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/gate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range codes {
		if !strings.Contains(string(page), "`"+c.code+"`") {
			t.Errorf("%s is missing", c.code)
		}
	}
	for pattern := range (&API{}).routes() {
		if !strings.Contains(string(page), "`"+pattern) {
			t.Errorf("%s is missing", pattern)
		}
	}
}
