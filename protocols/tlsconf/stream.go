package tlsconf

import (
	"crypto/tls"
	"errors"
	"time"
)

// A Stream is a leg in TLS whose sending side can be ended alone.
type Stream struct{ *tls.Conn }

// CloseWrite ends the sending side, for TLS and below it. What is being written by
// somebody else is given up, as TCP does: crypto/tls would wait for it.
func (s Stream) CloseWrite() error {
	_ = s.SetWriteDeadline(time.Unix(1, 0)) // the alert gets a deadline of its own
	err := s.Conn.CloseWrite()
	if w, ok := s.NetConn().(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, w.CloseWrite())
	}
	return err
}
