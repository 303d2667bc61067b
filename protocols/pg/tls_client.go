package pg

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// recordHandshake is the first byte of a client that begins with TLS at once.
const recordHandshake = 0x16

var (
	errNoTLS  = errors.New("the client began with TLS, which this listener does not offer")
	errNoALPN = errors.New("the client began with TLS at once, without the protocol's name (ALPN)")
)

// A handshakeError is a handshake with a client that failed.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS with the client: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// offersTLS reports whether TLS is offered to the client. On a Unix socket it is not,
// as by the server.
func (s *Server) offersTLS(client net.Conn) bool { return s.cfg.TLS != nil && !isUnix(client) }

// acceptTLS makes a TLS connection of a client's. seen is what was read of it already.
//
// INVARIANT: nothing that came before the handshake is taken for something said within
// it: the client's plaintext is read to the byte and never ahead, so that what a third
// party put behind a request for TLS reaches the handshake, and fails it.
func (s *Server) acceptTLS(client net.Conn, seen []byte) (*tlsStream, error) {
	now := s.cfg.TLS.Now()
	raw := client
	if len(seen) > 0 {
		raw = &rewound{Conn: client, seen: seen}
	}
	t := &tlsStream{Stream: tlsconf.Stream{Conn: tls.Server(raw, now.Config)}, cert: now.Leaf.Raw}
	if err := t.Handshake(); err != nil {
		var stuffed tls.RecordHeaderError
		if errors.As(err, &stuffed) && stuffed.Conn != nil && len(seen) == 0 {
			return nil, &startupError{"08P01", "received unencrypted data after SSL request"}
		}
		return nil, &handshakeError{err}
	}
	return t, nil
}

// A rewound connection gives again what was read of it.
type rewound struct {
	net.Conn
	seen []byte
}

// Read reads what was seen first.
func (r *rewound) Read(b []byte) (int, error) {
	if len(r.seen) > 0 {
		n := copy(b, r.seen)
		r.seen = r.seen[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// NetConn is the connection itself.
func (r *rewound) NetConn() net.Conn { return r.Conn }

// CloseWrite ends the sending side.
func (r *rewound) CloseWrite() error {
	if w, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// begin reads a client's first packet, answering requests for encryption, and returns
// it with the connection that the session goes on with. It reads not one byte more.
func (s *Server) begin(client net.Conn) (net.Conn, []byte, error) {
	ssl, gss, inTLS := false, false, false // the first two: no more such requests
	for first := true; ; first = false {
		var head [4]byte
		if _, err := io.ReadFull(client, head[:]); err != nil {
			return client, nil, fmt.Errorf("reading the length: %w", err)
		}
		if first && head[0] == recordHandshake {
			if !s.offersTLS(client) {
				return client, nil, errNoTLS
			}
			t, err := s.acceptTLS(client, head[:])
			if err != nil {
				return client, nil, err
			}
			client, inTLS = t, true // it may ask still; the answer is no
			if t.ConnectionState().NegotiatedProtocol != alpn {
				return client, nil, errNoALPN
			}
			continue
		}
		packet, err := readPacket(client, head)
		if err != nil {
			return client, nil, err
		}
		code := binary.BigEndian.Uint32(packet[4:])
		answer := byte('N')
		switch {
		case code == codeSSL && !ssl:
			ssl = true
			if !inTLS && s.offersTLS(client) {
				answer = 'S'
			}
		case code == codeGSS && !gss:
			gss = true
		default:
			return client, packet, nil
		}
		if _, err := client.Write([]byte{answer}); err != nil {
			return client, nil, fmt.Errorf("answering a request for encryption: %w", err)
		}
		if answer == 'S' {
			t, err := s.acceptTLS(client, nil)
			if err != nil {
				return client, nil, err
			}
			client, gss, inTLS = t, true, true
		}
	}
}

// notBegun ends with a client that did not come as far as a start-up packet.
func (s *Server) notBegun(client net.Conn, err error) {
	level := slog.LevelDebug
	if e := new(handshakeError); errors.As(err, &e) || errors.Is(err, errNoTLS) || errors.Is(err, errNoALPN) || errors.Is(err, errProxied) {
		level = slog.LevelInfo // somebody's configuration is wrong
	}
	s.cfg.Logger.Log(context.Background(), level, "start-up packet", "client", client.RemoteAddr(), "err", err)
	if e := new(startupError); errors.As(err, &e) {
		s.reject(client, e)
	} else if errors.Is(err, errNoTLS) || errors.Is(err, errPacketLength) {
		// Without a word, as the server: it could not be understood.
		lingerClose(client)
	}
}

// mayLogin looks at how the client of a StartupMessage came. Requests to cancel are
// taken as they come, as by the server: libpq sends them without TLS.
func (s *Server) mayLogin(client net.Conn, packet []byte) error {
	if s.cfg.TLS == nil || isUnix(client) {
		return nil
	}
	o := s.cfg.TLS.Options()
	t, ok := client.(*tlsStream)
	switch {
	case !ok && (o.Required || o.ClientCerts == tlsconf.RequireClientCerts):
		return &startupError{"28000", "this listener takes connections with TLS only: connect with sslmode=require, or a stricter one"}
	case !ok || o.ClientCerts != tlsconf.RequireClientCerts:
		return nil
	}
	// What was shown was verified in the handshake.
	certs := t.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return &startupError{"28000", "connection requires a valid client certificate"}
	}
	if !o.ClientUser {
		return nil
	}
	params, err := readParams(packet[8:])
	if err != nil {
		return &startupError{"08P01", err.Error()}
	}
	user := ""
	for _, p := range params {
		if p[0] == "user" {
			user = p[1] // the server takes the last one
		}
	}
	// The server cuts names at 63 bytes: a longer one would be another user's.
	if user == "" || len(user) > 63 || user != certs[0].Subject.CommonName {
		return &startupError{"28000", fmt.Sprintf("certificate authentication failed for user %q", user)}
	}
	return nil
}
