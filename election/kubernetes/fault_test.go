package kubernetes

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// unavailable asks all five within patience and fails unless each says that the
// backend is out of reach, in time.
func unavailable(t testing.TB, b election.Backend, id string, token election.Token, patience time.Duration) {
	t.Helper()
	for name, call := range map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := b.Acquire(ctx, id, election.AcquireOptions{})
			return err
		},
		"Renew": func(ctx context.Context) error { _, err := b.Renew(ctx, id, token); return err },
		"Resign": func(ctx context.Context) error {
			_, err := b.Resign(ctx, id, token, election.ResignOptions{})
			return err
		},
		"Status":   func(ctx context.Context) error { _, err := b.Status(ctx, id); return err },
		"Validate": func(ctx context.Context) error { _, err := b.Validate(ctx, id, token); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		asked := time.Now()
		err := call(ctx)
		cancel()
		if !errors.Is(err, election.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(asked); d > patience+5*time.Second {
			t.Errorf("%s took %v", name, d)
		}
	}
}

// The API server is stopped, killed, and loses its data, one after another, under one
// backend and one holder.
func TestServerFaults(t *testing.T) {
	t.Parallel()
	k := testenv.Kube(t, servers.KubeOptions{})
	path, err := k.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, path)
	b := s.open(t, s.config)
	g := win(t, b, "e", election.AcquireOptions{Owner: "a"})
	restart := func(t *testing.T, wipe bool) {
		t.Helper()
		k.Kill()
		unavailable(t, b, "e", g.Token, 10*time.Second)
		if wipe {
			if err := os.RemoveAll(k.EtcdDir()); err != nil {
				t.Fatal(err)
			}
		}
		programs, err := testenv.KubePrograms(testenv.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		again, err := servers.StartKube(testenv.Context(t), servers.KubeOptions{Programs: programs, Port: k.Port(), Dir: k.Dir})
		if err != nil {
			t.Fatal(err)
		}
		k = again
	}
	t.Cleanup(func() { k.Stop() })

	t.Run("Stopped", func(t *testing.T) {
		thaw := testenv.Freeze(t, k.Process)
		unavailable(t, b, "e", g.Token, 300*time.Millisecond)
		thaw()
		standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
		renew(t, b, "e", g.Token, election.Renewed)
	})
	t.Run("KilledAndRestarted", func(t *testing.T) {
		restart(t, false)
		standing(t, b, "e", g.Token, election.StandingCurrent, g.Number)
		renew(t, b, "e", g.Token, election.Renewed)
		if r, err := b.Acquire(t.Context(), "e", election.AcquireOptions{}); err != nil || r.Status != election.Busy || r.Number != g.Number {
			t.Errorf("%+v, %v", r, err)
		}
	})
	// E9: etcd restarts empty. The namespace is gone with the rest.
	t.Run("EtcdWiped", func(t *testing.T) {
		restart(t, true)
		renew(t, b, "e", g.Token, election.Lost)
		standing(t, b, "e", g.Token, election.StandingVacant, 0)
		r, err := b.Acquire(t.Context(), "e", election.AcquireOptions{})
		if !errors.Is(err, election.ErrUnavailable) || !strings.Contains(err.Error(), s.namespace) || r.Status != 0 {
			t.Fatalf("no namespace: %+v, %v", r, err)
		}
		t.Log(err)
		s.makeNamespace(t)
		// Also by who never saw a number.
		fresh := s.open(t, s.config)
		h := win(t, fresh, "e", election.AcquireOptions{})
		if h.Number <= g.Number {
			t.Errorf("number %d after %d", h.Number, g.Number)
		}
		renew(t, b, "e", g.Token, election.Lost)
		standing(t, b, "e", g.Token, election.StandingStale, h.Number)
	})
}

// E2: the Lease is deleted under a live holder, who renews meanwhile; nothing of its
// renewals comes back.
func TestLeaseDeletedUnderHolder(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	b := s.open(t, s.config)
	for range 20 {
		g := win(t, b, "e", election.AcquireOptions{})
		lost := make(chan error, 1)
		go func() {
			for {
				r, err := b.Renew(t.Context(), "e", g.Token)
				if err != nil || r.Status == election.Lost {
					lost <- err
					return
				}
			}
		}()
		s.lose(t, "e")
		if err := <-lost; err != nil {
			t.Fatal(err)
		}
		s.must(t, http.MethodGet, s.leases("e"), nil, http.StatusNotFound)
		testenv.Eventually(t, "the next millisecond", func() bool { return time.Now().UnixMilli() > g.Number })
	}
}

// E3: packets vanish and no connection ends. Calls end with their contexts, and once
// the network is back the very next one gets through, although the connections of
// before stay dead, and another call still waits on one of them.
func TestPacketsVanish(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	f := forward(t, s.host(t))
	b := s.open(t, s.at(f.addr))
	g := win(t, b, "e", election.AcquireOptions{})
	for range 2 {
		ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
		var wg sync.WaitGroup // as many connections
		for range 8 {
			wg.Go(func() {
				if _, err := b.Validate(ctx, "e", g.Token); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		f.cut(true)
		patient, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if r, err := b.Validate(patient, "e", g.Token); !errors.Is(err, context.Canceled) {
				t.Errorf("through the cut: %+v, %v", r, err)
			}
		})
		unavailable(t, b, "e", g.Token, 200*time.Millisecond)
		f.cut(false)
		if r, err := b.Renew(ctx, "e", g.Token); err != nil || r.Status != election.Renewed {
			t.Errorf("after the cut: %+v, %v", r, err)
		}
		done()
		cancel()
		wg.Wait()
	}
}

// Close ends calls that wait for a server which does not answer, and returns.
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	f := forward(t, s.host(t))
	b := s.openLeft(t, s.at(f.addr))
	g := win(t, b, "e", election.AcquireOptions{})
	f.cut(true)
	failed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := b.Renew(ctx, "e", g.Token)
		failed <- err
	}()
	testenv.Eventually(t, "the question", func() bool { return f.dropped.Load() > 0 })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, election.ErrClosed) {
		t.Errorf("%v, want %v", err, election.ErrClosed)
	}
	standing(t, s.open(t, s.config), "e", g.Token, election.StandingCurrent, g.Number)
}

// A question is one request, and it changes nothing.
func TestQuestionsAreOneRead(t *testing.T) {
	t.Parallel()
	s := sharedSite(t)
	g := win(t, s.open(t, s.config), "e", election.AcquireOptions{TTL: election.MinTTL})
	var reads, writes atomic.Int32
	b := s.open(t, s.tapped(func(q *http.Request) {
		if q.Method == http.MethodGet && q.URL.RawQuery == "" {
			reads.Add(1)
		} else {
			writes.Add(1)
		}
	}, nil))
	version := s.get(t, "e").ResourceVersion
	asked := int32(0)
	testenv.Eventually(t, "the end of the lease", func() bool {
		asked += 2
		if _, err := b.Status(t.Context(), "e"); err != nil {
			t.Fatal(err)
		}
		v, err := b.Validate(t.Context(), "e", g.Token)
		return err == nil && v.Standing == election.StandingVacant
	})
	if reads.Load() != asked || writes.Load() != 0 {
		t.Errorf("%d calls: %d reads, %d other requests", asked, reads.Load(), writes.Load())
	}
	if now := s.get(t, "e").ResourceVersion; now != version {
		t.Errorf("the Lease was changed from %s to %s", version, now)
	}
}

// A server that answers badly is asked once a call, and nothing of client-go's reaches
// the process's log.
func TestBadAnswers(t *testing.T) {
	var said sync.Map
	klog.SetLogger(funcr.New(func(_, args string) { said.Store(args, true) }, funcr.Options{}))
	defer klog.ClearLogger()
	answers := []func(http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) },
		func(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) },
		func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{not json") },
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100") // and then less
			_, _ = io.WriteString(w, "{")
		},
		func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`) },
	}
	var (
		next  atomic.Pointer[func(http.ResponseWriter)]
		asked atomic.Int32
	)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Warning", `299 - "something is deprecated"`)
		w.Header().Set("Content-Type", "application/json")
		(*next.Load())(w)
	}))
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	b, err := Open(config, "default")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, answer := range answers {
		next.Store(&answer)
		asked.Store(0)
		unavailable(t, b, "e", election.NewToken(), 10*time.Second)
		if n := asked.Load(); n != 5 {
			t.Errorf("answer %d: asked %d times in five calls", i, n)
		}
	}
	server.Close()
	unavailable(t, b, "e", election.NewToken(), 10*time.Second)
	said.Range(func(k, _ any) bool { t.Errorf("logged: %v", k); return true })
}

// A forwarder passes bytes to a server until it is cut; connections that were open
// then pass nothing any more, and stay open.
type forwarder struct {
	addr    string
	dropped atomic.Int64

	mu    sync.Mutex
	now   *atomic.Bool // whether the connections of now are cut
	over  bool
	conns []net.Conn
}

func forward(t testing.TB, to string) *forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarder{addr: l.Addr().String(), now: new(atomic.Bool)}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		f.mu.Lock()
		f.over = true
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			cut := f.own(c, up)
			for _, way := range [][2]net.Conn{{c, up}, {up, c}} {
				wg.Go(func() { f.pump(way[0], way[1], cut) })
			}
		}
	})
	return f
}

// own notes connections, and returns what says that they are cut.
func (f *forwarder) own(conns ...net.Conn) *atomic.Bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, conns...)
	if f.over {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	return f.now
}

// cut cuts the connections there are and come, or lets through those that come.
func (f *forwarder) cut(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on {
		f.now.Store(true)
	} else {
		f.now = new(atomic.Bool)
	}
}

func (f *forwarder) pump(from, to net.Conn, cut *atomic.Bool) {
	defer func() {
		if !cut.Load() { // the end of a connection is a packet too
			_ = to.Close()
		}
	}()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if cut.Load() {
			f.dropped.Add(int64(n))
		} else if _, err := to.Write(buf[:n]); err != nil {
			return
		}
		if err != nil {
			return
		}
	}
}
