package pg

import (
	"net"

	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// alpn is the protocol's name in TLS.
const alpn = "postgresql"

// ALPN are the protocols to be named in the TLS options of either leg.
func ALPN() []string { return []string{alpn} }

// A tlsStream is a leg in TLS.
type tlsStream struct {
	tlsconf.Stream
	// cert is the certificate (DER) of the leg's server side: on the client's leg the
	// one that the client was shown, on the other the server's own.
	cert []byte
}

// certOf is the certificate (DER) of the server side of a leg, as it was shown in the
// handshake; nil without TLS.
func certOf(c net.Conn) []byte {
	if t, ok := c.(*tlsStream); ok {
		return t.cert
	}
	return nil
}

func isTLS(c net.Conn) bool { _, ok := c.(*tlsStream); return ok }

// isUnix reports whether a connection is a Unix socket's.
func isUnix(c net.Conn) bool { return c.LocalAddr().Network() == "unix" }
