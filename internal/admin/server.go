// Package admin serves the admin listener: health answers to everybody, and the API to whoever
// may use it.
//
// It promises that nothing of the API is answered to a caller without the bearer token or a
// verified client certificate where one of them is configured, and otherwise to callers of this
// machine alone; that no page of a browser can call it; and that headers, bodies,
// connections and time are bounded. What a handler streams is that handler's to bound.
package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// Config says who may use the API, and what callers may take.
type Config struct {
	// Token is the bearer token of the API; empty means that there is none.
	Token string
	// TLS is what callers begin with; nil means that they do not. A certificate that its
	// authorities signed is as good as the token.
	TLS *tlsconf.Server
	// MaxConns bounds the connections at once; zero means DefaultMaxConns. Those above are
	// told so, where there is no TLS, and closed.
	MaxConns int
	// Drain is how long requests may take to end when the server stops; zero means
	// DefaultDrain. Streams see their context end at once.
	Drain time.Duration
	// Log receives what an operator should know; nil means no log.
	Log *slog.Logger
}

// Defaults and bounds.
const (
	DefaultMaxConns = 2000
	DefaultDrain    = 5 * time.Second
	// MaxBody is the longest body of a request that ReadJSON takes, in bytes.
	MaxBody = 64 << 10
	// maxHeader bounds the header of a request; net/http adds 4096 bytes of its own.
	maxHeader     = 16 << 10
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// A Server is the admin listener. Register handlers before Serve.
type Server struct {
	c     Config
	token [sha256.Size]byte
	mux   *http.ServeMux
	cross *http.CrossOriginProtection

	headerTimeout, bodyTimeout time.Duration

	calls atomic.Int64 // requests of the API under way
}

// New makes a server without handlers.
func New(c Config) *Server {
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.Drain = cmp.Or(c.Drain, DefaultDrain)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{c: c, token: sha256.Sum256([]byte(c.Token)), mux: http.NewServeMux(), cross: http.NewCrossOriginProtection(),
		headerTimeout: headerTimeout, bodyTimeout: bodyTimeout}
	s.c.Token = "" // its digest is enough
	if c.Token != "" {
		s.c.Token = "set"
	}
	return s
}

// Open registers a handler that everybody may call. The pattern is http.ServeMux's.
func (s *Server) Open(pattern string, h http.Handler) { s.mux.Handle(pattern, h) }

// API registers a handler that needs authentication.
func (s *Server) API(pattern string, h http.Handler) {
	s.mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := s.refused(r); e != nil {
			if e.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="fenceproxy"`)
			}
			WriteError(w, e)
			return
		}
		// A quarter of the connections is left for health, however many calls stay: those that
		// stream or wait.
		if n := s.calls.Add(1); n > int64(s.c.MaxConns-s.c.MaxConns/4) {
			s.calls.Add(-1)
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			WriteError(w, &Error{Status: http.StatusServiceUnavailable, Code: "too-many-calls", Message: "as many calls as are allowed are under way"})
			return
		}
		defer s.calls.Add(-1)
		h.ServeHTTP(w, r)
	}))
}

// refused says why the caller may not use the API, or nil.
//
// INVARIANT: nil only for the token's bearer, for a certificate that was verified, and, where
// neither is configured, for a caller that reached a loopback address or a Unix socket by
// that very name: a browser's page from elsewhere has another Origin or another Host.
func (s *Server) refused(r *http.Request) *Error {
	if err := s.cross.Check(r); err != nil {
		return &Error{Status: http.StatusForbidden, Code: "cross-origin", Message: "requests of other sites' pages are refused"}
	}
	certs := s.c.TLS != nil && s.c.TLS.Options().ClientCA != ""
	if s.c.Token != "" {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 {
			return nil
		}
	}
	if certs && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return nil
	}
	if s.c.Token != "" || certs {
		hint := "Send the header Authorization: Bearer <token>, with the token of admin.token."
		if s.c.Token == "" {
			hint = "Show a certificate that an authority of admin.tls.client_ca signed."
		}
		return &Error{Status: http.StatusUnauthorized, Code: "unauthenticated", Message: "this needs authentication", Hint: hint}
	}
	if !local(r) {
		return &Error{Status: http.StatusForbidden, Code: "forbidden", Message: "without authentication the API serves callers of this machine alone",
			Hint: "Configure admin.token or admin.tls.client_ca, or call 127.0.0.1."}
	}
	return nil
}

// local reports whether a request came to a loopback address or a Unix socket, by the name
// of one.
func local(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, ok := addr.(*net.UnixAddr); ok {
		return true
	}
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}

// Serve answers requests from l until ctx is done or l fails, and returns when all of them
// have ended. It closes l. It returns nil when ctx ended it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	most := &bounded{Listener: l, most: int64(s.c.MaxConns), plain: s.c.TLS == nil}
	defer most.sorry.Wait()
	l = most
	if s.c.TLS != nil {
		l = tls.NewListener(l, &tls.Config{
			MinVersion: tlsconf.MinVersion,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				c := s.c.TLS.Now().Config.Clone()
				c.NextProtos = []string{"http/1.1"}
				return c, nil
			},
		})
	}
	srv := &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: s.headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.c.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		_ = srv.Close()
		return fmt.Errorf("serving the admin listener: %w", err)
	case <-ctx.Done():
	}
	end()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.c.Drain)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		_ = srv.Close()
	}
	if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the admin listener: %w", err)
	}
	return nil
}

// serve is the mux, whose own answers are made ours.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // ReadJSON takes it off
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyTimeout))
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	h, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r) // which sets the path's values
		return
	}
	silent := &silenced{header: w.Header()}
	h.ServeHTTP(silent, r)
	switch silent.status {
	case http.StatusNotFound:
		WriteError(w, &Error{Status: silent.status, Code: "not-found", Message: "there is nothing at this path"})
	case http.StatusMethodNotAllowed:
		WriteError(w, &Error{Status: silent.status, Code: "method-not-allowed", Message: "this path takes other methods: " + w.Header().Get("Allow")})
	default:
		w.WriteHeader(silent.status)
	}
}

// silenced keeps the header and the status of an answer, and drops its body.
type silenced struct {
	header http.Header
	status int
}

func (s *silenced) Header() http.Header { return s.header }

func (s *silenced) WriteHeader(status int) { s.status = cmp.Or(s.status, status) }

func (s *silenced) Write(b []byte) (int, error) {
	s.status = cmp.Or(s.status, http.StatusOK)
	return len(b), nil
}
