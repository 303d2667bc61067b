package pg

import (
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// What a listener wants of its clients' certificates.
func TestTLSClientCertificates(t *testing.T) {
	r := newTLSRig(t, "")
	mustExec(t, r.admin, `CREATE ROLE "`+strings.Repeat("u", 63)+`" LOGIN`)
	stranger := testenv.NewAuthority(t)
	app, other := r.ca.Issue("app", nil, nil), r.ca.Issue("other", nil, nil)
	expired := r.ca.Issue("app", nil, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(time.Minute) })
	unknown := stranger.Issue("app", nil, nil)
	long := r.ca.Issue(strings.Repeat("u", 63), nil, nil)
	nameless := r.ca.Issue("", nil, nil)
	with := func(c testenv.Cert) string { return "sslcert=" + c.Cert + " sslkey=" + c.Key }
	const (
		works   = "t"
		missing = "FATAL:  connection requires a valid client certificate"
		failed  = "FATAL:  certificate authentication failed for user"
		bad     = "tlsv1" // an alert, in OpenSSL's words
		noTLS   = "this listener takes connections with TLS only"
	)
	request := tlsconf.ServerOptions{ClientCA: r.ca.CA, ClientCerts: tlsconf.RequestClientCerts}
	require := tlsconf.ServerOptions{ClientCA: r.ca.CA, ClientCerts: tlsconf.RequireClientCerts}
	user := tlsconf.ServerOptions{ClientCA: r.ca.CA, ClientCerts: tlsconf.RequireClientCerts, ClientUser: true}
	for _, c := range []struct {
		name string
		o    tlsconf.ServerOptions
		how  string
		want string
	}{
		{"none, one shown", tlsconf.ServerOptions{}, with(app), works},
		{"none, a bad one shown", tlsconf.ServerOptions{}, with(unknown), works},
		{"request, none", request, "", works},
		{"request, one", request, with(other), works},
		{"request, unknown", request, with(unknown), bad},
		{"request, expired", request, with(expired), bad},
		{"request, without TLS", request, "sslmode=disable", works},
		{"require, none", require, "", missing},
		{"require, one", require, with(other), works},
		{"require, unknown", require, with(unknown), bad},
		{"require, expired", require, with(expired), bad},
		{"require, without TLS", require, "sslmode=disable", noTLS},
		{"user, none", user, "", missing},
		{"user, the user's", user, with(app), works},
		{"user, another's", user, with(other), failed},
		{"user, nobody's", user, with(nameless), failed},
		// The server cuts names at 63 bytes.
		{"user, long", user, with(long) + " user=" + strings.Repeat("u", 63), works},
		{"user, too long", user, with(app) + " user=app" + strings.Repeat("u", 63), failed},
		{"user, cut", user, with(long) + " user=" + strings.Repeat("u", 64), failed},
	} {
		r.start(&c.o, &tlsconf.ClientOptions{Mode: tlsconf.Require})
		how := c.how
		if !strings.Contains(how, "sslmode") {
			how += " sslmode=verify-full"
		}
		out, err := r.psql(how, upstreamSSL)
		if (c.want == works) != (err == nil) || c.want == works && out != works || !strings.Contains(out, c.want) && !(c.want == bad && strings.Contains(out, "alert")) {
			t.Errorf("%s: %v %s", c.name, err, out)
		}
	}
	// The user that the server takes is the last of several.
	r.start(&user, nil)
	conn := dialRaw(t, r.addr)
	conn.send(sslRequest)
	conn.letter()
	conf := r.trust()
	o := r.clientTLS(tlsconf.ClientOptions{Mode: tlsconf.Require, Cert: other.Cert, Key: other.Key})
	conf.GetClientCertificate = o.Config("localhost").GetClientCertificate
	s, err := conn.tls(conf)
	if err != nil {
		t.Fatal(err)
	}
	s.send(startPacket(v3, "user", "other", "user", "app", "database", r.db))
	if typ, body := s.message(); typ != 'E' || !strings.Contains(string(body), "C28000") {
		t.Errorf("%c %q", typ, body)
	}
	// A request to cancel is nobody's login.
	if err := r.srvCancel(t); err != nil {
		t.Error(err)
	}
}

// srvCancel sends a request to cancel nothing, in plaintext, and waits for its end.
func (r *tlsRig) srvCancel(t *testing.T) error {
	c := dialRaw(t, r.addr)
	c.send([]byte{0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e, 0, 0, 0, 0, 0, 0, 0, 0})
	if b := c.rest(); len(b) > 0 {
		return fmt.Errorf("said %q", b)
	}
	return nil
}

// The server sees the proxy's own certificate: cert in pg_hba.conf is the proxy's login,
// clientcert comes beside the client's.
func TestTLSCertificateForTheServer(t *testing.T) {
	r := newTLSRig(t, "hostssl all app 127.0.0.1/32 cert\n")
	app, other := r.ca.Issue("app", nil, nil), r.ca.Issue("other", nil, nil)
	unknown := testenv.NewAuthority(t).Issue("app", nil, nil)
	try := func(what string, c testenv.Cert, want string) {
		t.Helper()
		r.start(nil, &tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA, Cert: c.Cert, Key: c.Key})
		if out, _ := r.psql("sslmode=disable", upstreamSSL); !strings.Contains(out, want) {
			t.Errorf("%s: %s", what, out)
		}
	}
	try("the user's", app, "t")
	mustExec(t, r.leader(), "TRUNCATE t")
	try("another's", other, `certificate authentication failed for user "app"`)
	try("none", testenv.Cert{}, "connection requires a valid client certificate")
	try("an unknown authority's", unknown, "server closed the connection unexpectedly")

	hba(t, r, "hostssl all app 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n")
	try("beside the password", other, "t")
}

// hba replaces pg_hba.conf.
func hba(t *testing.T, r *tlsRig, lines string) {
	t.Helper()
	name := queryString(t, r.admin, "SHOW hba_file")
	if err := os.WriteFile(name, []byte("host all postgres 127.0.0.1/32 trust\n"+lines), 0o644); err != nil {
		t.Fatal(err)
	}
	mustExec(t, r.admin, "SELECT pg_reload_conf()")
	eventually(t, func() bool {
		return queryString(t, r.admin, "SELECT (pg_conf_load_time() > now() - interval '10 s')::text") == "true"
	})
}

// Sessions go on over a renewal; those that begin behind it see the new certificates, on
// both legs.
func TestTLSReload(t *testing.T) {
	r := newTLSRig(t, "")
	cert := r.ca.Issue("first", nil, nil)
	down := r.serverTLS(tlsconf.ServerOptions{})
	up := r.clientTLS(tlsconf.ClientOptions{Mode: tlsconf.Require, Cert: cert.Cert, Key: cert.Key})
	r.startWith(nil, nil, func(c *Config) { c.TLS, c.UpstreamTLS = down, up })
	const dn = "SELECT client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
	c := r.connect("")
	for _, name := range []string{"second", "third"} {
		renewed := r.ca.Issue("proxy", []string{"localhost"}, nil)
		renewed.Replace(t, r.proxy)
		r.ca.Issue(name, nil, nil).Replace(t, cert)
		for _, l := range []tlsconf.Reloader{down, up} {
			if changed, err := l.Reload(); err != nil || !changed {
				t.Fatal(changed, err)
			}
		}
		if got := r.shown(r.addr); got != renewed.Leaf.SerialNumber.String() {
			t.Errorf("%s is shown", got)
		}
		if got, err := r.psql("sslmode=verify-full host=localhost hostaddr=127.0.0.1", dn); err != nil || got != "/CN="+name {
			t.Errorf("%v %s", err, got)
		}
		if got := queryString(t, c, dn); got != "/CN=first" {
			t.Error(got)
		}
	}
}
