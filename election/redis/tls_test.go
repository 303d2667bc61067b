package redis

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// secured stands before a server with TLS, and returns the certificate to trust.
func secured(t testing.TB, server string) (addr string, roots *x509.CertPool) {
	t.Helper()
	h := httptest.NewTLSServer(nil) // for its certificate
	defer h.Close()
	roots = x509.NewCertPool()
	roots.AddCert(h.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: h.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Relay(t, l, server, nil, nil)
	return l.Addr().String(), roots
}

func TestTLS(t *testing.T) {
	addr, roots := secured(t, testenv.SharedRedis(t).Addr)
	id := testenv.Name(t, "tls")
	b, err := OpenURL("rediss://"+addr, Options{TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	g := win(t, b, id, election.AcquireOptions{})
	standing(t, b, id, g.Token, election.StandingCurrent, g.Number)
	closes(t, b)
	stranger, err := OpenURL("rediss://"+addr, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ends(t, asked(t.Context(), stranger, id), election.ErrUnavailable)
	closes(t, stranger)
}
