package pg

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A tlsError is a failure of TLS with a server that was reached.
type tlsError struct{ err error }

func (e *tlsError) Error() string { return "TLS with the server: " + e.err.Error() }
func (e *tlsError) Unwrap() error { return e.err }

// ErrTLSRefused: the server does not offer TLS, and the mode wants it.
var ErrTLSRefused = errors.New("it does not offer TLS (ssl=off)")

var (
	errTLSAnswer = errors.New("it answered the request for TLS with an error, or is no Postgres server")
	errNoAnswer  = errors.New("accepts connections but does not answer as a Postgres server")
)

// How one connection to the server is encrypted.
type encryption int

const (
	plaintext encryption = iota
	preferTLS            // in plaintext where the server does not offer TLS
	onlyTLS
)

// firstTry is how the mode connects first.
func firstTry(m tlsconf.Mode) encryption {
	switch m {
	case tlsconf.Disable, tlsconf.Allow:
		return plaintext
	case tlsconf.Prefer:
		return preferTLS
	}
	return onlyTLS
}

// dialTarget connects to one server as the mode says.
func (s *Server) dialTarget(ctx context.Context, t target) (stream, error) {
	mode := s.cfg.UpstreamTLS.Mode()
	c, err := s.dialAs(ctx, t, firstTry(mode))
	// As libpq: where TLS is only preferred, its failure is no failure.
	if e := new(tlsError); mode == tlsconf.Prefer && errors.As(err, &e) && ctx.Err() == nil {
		s.cfg.Logger.Debug("going on without TLS", "upstream", t.addr, "err", err)
		return s.dialAs(ctx, t, plaintext)
	}
	return c, err
}

// encrypted gives a fresh connection the encryption that is wanted, or closes it. host
// is the server's name as it was configured.
func (s *Server) encrypted(ctx context.Context, c stream, host string, want encryption) (stream, error) {
	if want == plaintext || isUnix(c) { // servers have no TLS on Unix sockets
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	t, err := s.handshake(c, host, want)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, &tlsError{err}
	}
	return t, nil
}

// INVARIANT: the answer to the request is read to the byte: what somebody else put
// behind it reaches the handshake, and fails it.
func (s *Server) handshake(c stream, host string, want encryption) (stream, error) {
	request := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, codeSSL)
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	var answer [1]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return nil, err
	}
	switch {
	case answer[0] == 'S':
	case answer[0] == 'N' && want == preferTLS:
		return c, nil
	case answer[0] == 'N':
		return nil, ErrTLSRefused
	default:
		return nil, errTLSAnswer
	}
	t := &tlsStream{Stream: tlsconf.Stream{Conn: tls.Client(c, s.cfg.UpstreamTLS.Config(host))}}
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	if certs := t.ConnectionState().PeerCertificates; len(certs) > 0 {
		t.cert = certs[0].Raw
	}
	return t, nil
}

// open connects to the server for a session. In the modes that have a second way it
// also sends the start-up packet and waits for the first bytes of the answer, which
// are the greeting: a server that refuses a session for its encryption (pg_hba.conf)
// says so there.
func (s *Server) open(ctx context.Context, packet []byte) (up stream, to target, greeting []byte, err error) {
	up, to, err = s.dial(ctx)
	if err != nil {
		return nil, to, nil, err
	}
	second := plaintext
	switch mode := s.cfg.UpstreamTLS.Mode(); {
	case mode == tlsconf.Allow && !isTLS(up) && !isUnix(up):
		second = onlyTLS
	case mode == tlsconf.Prefer && isTLS(up):
	default:
		return up, to, nil, nil
	}
	greeting, refused := s.greet(ctx, up, packet)
	if !refused {
		return up, to, greeting, nil
	}
	again, err := s.dialAs(ctx, to, second)
	if err != nil {
		s.cfg.Logger.Debug("the other encryption", "upstream", to.addr, "err", err)
		return up, to, greeting, nil // the first refusal says it best
	}
	_ = up.Close()
	return again, to, nil, nil
}

// greet sends a start-up packet and reads the head of the answer. It reports true with
// the whole answer when that refuses the session before any authentication.
func (s *Server) greet(ctx context.Context, up stream, packet []byte) (got []byte, refused bool) {
	_ = up.SetDeadline(time.Now().Add(s.cfg.LoginTimeout))
	stop := context.AfterFunc(ctx, func() { _ = up.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		// Past deadlines stay where the proxy is shutting down: the session ends at once.
		if stop() {
			_ = up.SetDeadline(time.Time{})
		}
	}()
	got = []byte{}
	if _, err := up.Write(packet); err != nil {
		return got, false // what the server said of it is still to be read
	}
	more := func(n int) bool {
		at := len(got)
		got = append(got, make([]byte, n)...)
		n, err := io.ReadFull(up, got[at:])
		got = got[:at+n]
		return err == nil
	}
	for first := true; more(5); first = false {
		at := len(got)
		typ, size := header(got[at-5:])
		// Before the refusal there may be a NegotiateProtocolVersion.
		if typ != 'E' && (typ != 'v' || !first) || size < 4 || size > maxStartup || !more(size-4) {
			break
		}
		if typ == 'E' {
			return got, string(field(got[at:], 'C')) == "28000" // invalid_authorization_specification
		}
	}
	return got, false
}

// Reach connects to a server as a session would, and ends there: what it answers says that
// it is a Postgres. The state is nil where sessions begin without TLS.
func Reach(ctx context.Context, upstream string, t *tlsconf.Client, timeout time.Duration) (*tls.ConnectionState, error) {
	hosts, err := parseHosts(upstream)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: Config{UpstreamTLS: t, DialTimeout: timeout, Logger: slog.New(slog.DiscardHandler)}}
	var state *tls.ConnectionState
	var errs []error
	for _, h := range hosts {
		c, err := s.dialTarget(ctx, h)
		if err == nil {
			if t, ok := c.(*tlsStream); ok {
				is := t.ConnectionState()
				state = &is
			} else {
				_ = c.Close()
				c, err = s.askForTLS(ctx, h)
			}
		}
		if err == nil {
			_ = c.Close()
			return state, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// askForTLS asks and does not go on: any Postgres answers with one letter.
func (s *Server) askForTLS(ctx context.Context, t target) (stream, error) {
	c, err := s.dialAs(ctx, t, plaintext)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(s.cfg.DialTimeout))
	var answer [1]byte
	_, err = c.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, codeSSL))
	if err == nil {
		_, err = io.ReadFull(c, answer[:])
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	case answer[0] != 'S' && answer[0] != 'N':
		err = errNoAnswer
	default:
		return c, nil
	}
	_ = c.Close()
	return nil, err
}
