package pg

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// A tlsRig is a server of the test's own that has TLS, with an authority for both legs.
type tlsRig struct {
	*rig
	ca     *testenv.Authority
	server testenv.Cert // the server's
	proxy  testenv.Cert // the proxy's, for clients
}

// newTLSRig starts it with lines of pg_hba.conf; %s in them has no meaning.
func newTLSRig(t *testing.T, hba string, settings ...string) *tlsRig {
	t.Helper()
	ca := testenv.NewAuthority(t)
	s := &tlsRig{ca: ca, server: ca.Issue("server", []string{"localhost", "127.0.0.1"}, nil),
		proxy: ca.Issue("proxy", []string{"localhost", "127.0.0.1"}, nil)}
	if hba == "" {
		hba = "host all all 127.0.0.1/32 trust\n"
	}
	hba = "local all all trust\nhost all postgres 127.0.0.1/32 trust\n" + hba
	p := testenv.Postgres(t, servers.PostgresOptions{HBA: hba, Settings: append([]string{
		"ssl=on", "ssl_cert_file=" + s.server.Cert, "ssl_key_file=" + s.server.Key, "ssl_ca_file=" + ca.CA}, settings...)})
	s.rig = &rig{t: t, pg: p, db: "postgres", guard: &fakeGuard{}}
	s.admin = connect(t, p.DSN(servers.Superuser, "postgres"))
	mustExec(t, s.admin, "CREATE ROLE app LOGIN PASSWORD 'secret'")
	mustExec(t, s.admin, "CREATE TABLE t (a int PRIMARY KEY, b text); ALTER TABLE t OWNER TO app")
	pool, err := pgxpool.New(t.Context(), p.DSN(servers.Superuser, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s.guard.control = pool
	return s
}

// start serves with the options of both legs, nil for none.
func (r *tlsRig) start(client *tlsconf.ServerOptions, upstream *tlsconf.ClientOptions) {
	r.t.Helper()
	r.startWith(client, upstream, func(*Config) {})
}

func (r *tlsRig) startWith(client *tlsconf.ServerOptions, upstream *tlsconf.ClientOptions, change func(*Config)) {
	r.t.Helper()
	if r.stop != nil {
		r.stop()
	}
	r.serve(func(c *Config) {
		if client != nil {
			c.TLS = r.serverTLS(*client)
		}
		if upstream != nil {
			c.UpstreamTLS = r.clientTLS(*upstream)
		}
		change(c)
	})
}

func (r *tlsRig) serverTLS(o tlsconf.ServerOptions) *tlsconf.Server {
	r.t.Helper()
	o.Cert, o.Key, o.Protocols = r.proxy.Cert, r.proxy.Key, ALPN()
	s, err := tlsconf.OpenServer(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *tlsRig) clientTLS(o tlsconf.ClientOptions) *tlsconf.Client {
	r.t.Helper()
	o.Protocols = ALPN()
	c, err := tlsconf.OpenClient(o)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// psql asks for one value with parameters of a connection string.
func (r *tlsRig) psql(params, sql string) (string, error) {
	out, err := r.program("psql", []string{"PGSSLROOTCERT=" + r.ca.CA, "PGPASSWORD=secret"}, "-XAtc", sql, params)
	return strings.TrimSpace(out), err
}

// SQL that says whether the leg to the server is encrypted.
const upstreamSSL = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"

// Every sslmode of libpq's, on both legs, against what each leg has.
func TestTLSModes(t *testing.T) {
	r := newTLSRig(t, "")
	for _, leg := range []struct {
		name   string
		client *tlsconf.ServerOptions
		works  string // the sslmodes that work
	}{
		{"without", nil, "disable allow prefer"},
		{"offered", &tlsconf.ServerOptions{}, "disable allow prefer require verify-ca verify-full"},
		{"required", &tlsconf.ServerOptions{Required: true}, "allow prefer require verify-ca verify-full"},
	} {
		for mode, want := range map[tlsconf.Mode]string{tlsconf.Disable: "f", tlsconf.Allow: "f", tlsconf.Prefer: "t", tlsconf.Require: "t", tlsconf.VerifyCA: "t", tlsconf.VerifyFull: "t"} {
			o := tlsconf.ClientOptions{Mode: mode}
			if mode == tlsconf.VerifyCA || mode == tlsconf.VerifyFull {
				o.CA = r.ca.CA
			}
			r.start(leg.client, &o)
			token := r.guard.lead().Reveal()
			for _, sslmode := range tlsconf.Modes {
				params := fmt.Sprintf("sslmode=%s channel_binding=disable options='-c fence.token=%s'", sslmode, token)
				out, err := r.psql(params, upstreamSSL)
				works := strings.Contains(" "+leg.works+" ", " "+string(sslmode)+" ")
				switch {
				case works && (err != nil || out != want):
					t.Errorf("%s, upstream %s, sslmode=%s: %v %q", leg.name, mode, sslmode, err, out)
				case !works && err == nil:
					t.Errorf("%s, upstream %s, sslmode=%s works", leg.name, mode, sslmode)
				case !works && leg.client == nil && !strings.Contains(out, "server does not support SSL"),
					!works && leg.client != nil && !strings.Contains(out, "this listener takes connections with TLS only"):
					t.Errorf("%s, upstream %s, sslmode=%s says %s", leg.name, mode, sslmode, out)
				}
				if _, err := r.psql(params, "TRUNCATE t"); works && err != nil {
					t.Errorf("%s, upstream %s, sslmode=%s: does not write: %v", leg.name, mode, sslmode, err)
				}
			}
		}
	}
}

// The second way of prefer and allow is taken where pg_hba.conf refuses the first.
func TestTLSFallbacks(t *testing.T) {
	r := newTLSRig(t, "hostssl all app 127.0.0.1/32 trust\n")
	for mode, want := range map[tlsconf.Mode]string{tlsconf.Disable: "no encryption", tlsconf.Allow: "t", tlsconf.Prefer: "t"} {
		r.start(nil, &tlsconf.ClientOptions{Mode: mode})
		if out, _ := r.psql("sslmode=disable", upstreamSSL); !strings.Contains(out, want) {
			t.Errorf("hostssl, %s: %s", mode, out)
		}
		if mode != tlsconf.Disable {
			mustExec(t, r.leader(), "TRUNCATE t")
		}
	}
	// A server that first says which protocol it speaks.
	r.start(nil, &tlsconf.ClientOptions{Mode: tlsconf.Allow})
	c := dialRaw(t, r.addr)
	c.send(startPacket(v3|2, "user", "app", "database", r.db, "_pq_.unknown", "x"))
	for seen := ""; ; {
		typ, body := c.message()
		if seen += string(typ); typ == 'E' {
			t.Errorf("%s: %q", seen, body)
			break
		} else if typ == 'Z' {
			if !strings.HasPrefix(seen, "vR") {
				t.Error(seen)
			}
			break
		}
	}
	r2 := newTLSRig(t, "hostnossl all app 127.0.0.1/32 trust\n")
	for mode, want := range map[tlsconf.Mode]string{tlsconf.Require: "SSL encryption", tlsconf.Allow: "f", tlsconf.Prefer: "f"} {
		r2.start(nil, &tlsconf.ClientOptions{Mode: mode})
		if out, _ := r2.psql("sslmode=disable", upstreamSSL); !strings.Contains(out, want) {
			t.Errorf("hostnossl, %s: %s", mode, out)
		}
		if mode != tlsconf.Require {
			mustExec(t, r2.leader(), "TRUNCATE t")
		}
	}
}

// A server whose certificate is not good enough for the mode gets no start-up packet.
func TestTLSUpstreamUntrusted(t *testing.T) {
	r := newTLSRig(t, "")
	other := testenv.NewAuthority(t)
	for name, c := range map[string]struct {
		o     tlsconf.ClientOptions
		works bool
	}{
		"unknown authority, require":     {tlsconf.ClientOptions{Mode: tlsconf.Require}, true},
		"unknown authority":              {tlsconf.ClientOptions{Mode: tlsconf.VerifyCA, CA: other.CA}, false},
		"unknown authority, with a name": {tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: other.CA}, false},
		"require with authorities":       {tlsconf.ClientOptions{Mode: tlsconf.Require, CA: other.CA}, false},
		"the system's authorities":       {tlsconf.ClientOptions{Mode: tlsconf.VerifyFull}, false},
		"another name":                   {tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA, ServerName: "db.example"}, false},
		"another name, not looked at":    {tlsconf.ClientOptions{Mode: tlsconf.VerifyCA, CA: r.ca.CA}, true},
		"the name, given":                {tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA, ServerName: "localhost"}, true},
	} {
		r.start(nil, &c.o)
		out, err := r.psql("sslmode=disable", upstreamSSL)
		if c.works != (err == nil && out == "t") || !c.works && !strings.Contains(out, "the proxy cannot connect to the server") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
	for name, c := range map[string]struct {
		cert  testenv.Cert
		works bool
	}{
		"expired":                {r.ca.Issue("x", []string{"127.0.0.1"}, func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(1) }), false},
		"another host's":         {r.ca.Issue("x", []string{"db.example"}, nil), false},
		"no name, but a common":  {r.ca.Issue("127.0.0.1", nil, nil), true},
		"common name not enough": {r.ca.Issue("127.0.0.1", []string{"db.example"}, nil), false},
	} {
		c.cert.Replace(t, r.server)
		mustExec(t, r.admin, "SELECT pg_reload_conf()")
		r.start(nil, &tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: r.ca.CA})
		eventually(t, func() bool { return r.shown(r.pg.Addr) == c.cert.Leaf.SerialNumber.String() })
		out, err := r.psql("sslmode=disable", upstreamSSL)
		if c.works != (err == nil && out == "t") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}
