package pgdiff

import (
	"context"
	"crypto/x509"
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/loops/loopstest"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

var update = flag.Bool("update", false, "rewrite what the servers answer, in testdata")

func TestMain(m *testing.M) { testenv.Main(m) }

const hba = `
host all md5user       127.0.0.1/32 md5
host all scramuser     127.0.0.1/32 scram-sha-256
host all cleartextuser 127.0.0.1/32 password
host all rejected      127.0.0.1/32 reject
host all all           127.0.0.1/32 trust
`

// The server's own names of the roles' passwords: all are "secret".
const install = `
CREATE ROLE app LOGIN;
SET password_encryption = 'md5';
CREATE ROLE md5user LOGIN PASSWORD 'secret';
SET password_encryption = 'scram-sha-256';
CREATE ROLE scramuser LOGIN PASSWORD 'secret';
CREATE ROLE cleartextuser LOGIN PASSWORD 'secret';
CREATE ROLE rejected LOGIN;
`

const tables = `
GRANT ALL ON SCHEMA public TO PUBLIC;
CREATE TABLE t (a int PRIMARY KEY, b text);
ALTER TABLE t OWNER TO app;
CREATE FUNCTION noisy(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN RAISE NOTICE 'noise %', n USING DETAIL = 'detail', HINT = 'hint'; RAISE WARNING 'warning'; RETURN n; END $$;
`

// A stage is one version's server with proxies before it.
type stage struct {
	direct place
	proxy  map[string]place // by mode
	tls    map[string]place // the same, with TLS on both legs
}

func newStage(t *testing.T, v testenv.Version) *stage {
	t.Helper()
	ctx := testenv.Context(t)
	ca := testenv.NewAuthority(t)
	cert, own := ca.Issue("server", []string{"127.0.0.1"}, nil), ca.Issue("proxy", []string{"127.0.0.1"}, nil)
	// Nothing can be prepared here: a leader may do all that the server lets it do.
	p := testenv.Postgres(t, servers.PostgresOptions{Bin: v.Bin, HBA: hba, Settings: []string{
		"log_min_messages=panic", "ssl_cert_file=" + cert.Cert, "ssl_key_file=" + cert.Key}})
	root := connect(t, p.DSN(servers.Superuser, "postgres"))
	exec(t, root, install)
	exec(t, root, "CREATE DATABASE app")
	sql, err := pgfence.InstallSQL(pgfence.InstallOptions{Login: true, SCRAM: true})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, root, sql)
	admin := connect(t, p.DSN(servers.Superuser, "app"))
	exec(t, admin, tables)

	f, err := pgfence.Open(ctx, p.DSN(pgfence.DefaultRole, "postgres"), pgfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	b := memory.New()
	got, err := b.Acquire(ctx, "orders", election.AcquireOptions{Owner: "w1", TTL: 30 * time.Minute})
	if err != nil || got.Status != election.Acquired {
		t.Fatalf("acquire: %+v, %v", got, err)
	}
	g := guard.New(b, f, guard.Config{})
	t.Cleanup(g.Close)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	s := &stage{direct: place{addr: p.Addr, admin: admin, roots: roots}, proxy: make(map[string]place), tls: make(map[string]place)}
	for _, mode := range allModes {
		c := pg.Config{Upstream: p.Addr, Guard: pg.Admit(g), Binder: f, DefaultElection: "orders", Verifiers: f.Verifiers(), Loops: loopstest.Start(t)}
		if mode == "bytes" {
			c.Buffer = 1 // the least there is
		}
		with := place{proxy: true, admin: admin, token: got.Token.Reveal(), roots: roots}
		with.addr = serve(t, c, mode == "bytes")
		s.proxy[mode] = with
		if c.TLS, err = tlsconf.OpenServer(tlsconf.ServerOptions{Cert: own.Cert, Key: own.Key, Protocols: pg.ALPN()}); err != nil {
			t.Fatal(err)
		}
		c.UpstreamTLS, err = tlsconf.OpenClient(tlsconf.ClientOptions{Mode: tlsconf.VerifyFull, CA: ca.CA, Protocols: pg.ALPN()})
		if err != nil {
			t.Fatal(err)
		}
		with.addr = serve(t, c, mode == "bytes")
		s.tls[mode] = with
	}
	return s
}

// beginTLS makes the server offer TLS. Cases that need that come last.
func (st *stage) beginTLS(t *testing.T) {
	t.Helper()
	exec(t, st.direct.admin, "ALTER SYSTEM SET ssl = on")
	exec(t, st.direct.admin, "SELECT pg_reload_conf()")
	for deadline := time.Now().Add(patience); ; {
		c, err := dial(st.direct.addr, "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.ask("ssl")
		c.close()
		switch {
		case err != nil:
			t.Fatal(err)
		case m.typ == 'S':
			return
		case time.Now().After(deadline):
			t.Fatal("the server does not offer TLS")
		}
	}
}

func serve(t *testing.T, c pg.Config, bytewise bool) string {
	t.Helper()
	srv, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := testenv.Listen(t)
	addr := l.Addr().String()
	if bytewise {
		l = testenv.Bytewise{Listener: l}
	}
	testenv.Serve(t, l, srv.Serve)
	return addr
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// Every case, on every version, for every kind of session, in every mode: through the proxy
// comes what the server itself answers, and that is what testdata holds.
func TestAsTheServer(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.pg")
	if len(files) == 0 {
		t.Fatal("no cases")
	}
	versions := testenv.PostgresVersions(t)
	scripts := make(map[string]*script)
	answers := make(map[string]map[answer]string)
	for _, file := range files {
		s, err := readScript(file, servers.PostgresMajors())
		if err != nil {
			t.Fatal(err)
		}
		scripts[file], answers[file] = s, make(map[answer]string)
	}
	slices.SortStableFunc(files, func(a, b string) int {
		switch {
		case scripts[a].tls == scripts[b].tls:
			return 0
		case scripts[a].tls:
			return 1
		}
		return -1
	})
	var mu sync.Mutex
	// Not all versions at once: there are servers enough on this machine.
	t.Run("on", func(t *testing.T) {
		for _, v := range versions {
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				st := newStage(t, v)
				begun := false
				for _, file := range files {
					if s := scripts[file]; slices.Contains(s.versions, v.Major) {
						if s.tls && !begun {
							st.beginTLS(t)
							begun = true
						}
						t.Run(strings.TrimSuffix(filepath.Base(file), ".pg"), func(t *testing.T) {
							for _, as := range s.as {
								for a, text := range st.compare(t, s, as, v.Major) {
									mu.Lock()
									answers[file][a] = text
									mu.Unlock()
								}
							}
						})
					}
				}
			})
		}
	})
	if *update && !t.Failed() {
		for file, s := range scripts {
			if err := s.write(file, answers[file]); err != nil {
				t.Error(err)
			}
		}
	}
}

// compare runs a script against the server and through the proxies.
func (st *stage) compare(t *testing.T, s *script, as string, version int) map[answer]string {
	t.Helper()
	got := make(map[answer]string)
	pin := func(a answer, x *side) {
		text := x.text(s.settings)
		got[a] = text
		if want, _ := s.pinned(a); !*update && s.loose == "" && text != want {
			t.Errorf("%s: pinned is another answer (go test -update rewrites it): got\n%s\nwant\n%s", a.key(), text, want)
		}
	}
	follow := func(p place, mode string) *side {
		x, err := p.follow(testenv.Context(t), s, as, mode)
		if err != nil {
			t.Fatal(err)
		}
		if x.failed != "" {
			t.Errorf("%s, %s, proxy %v: %s", as, mode, p.proxy, x.text(true))
		}
		return x
	}
	direct := follow(st.direct, "written")
	pin(answer{as, version, false}, direct)
	if slices.Contains(s.modes, "joined") && s.loose == "" {
		if x := follow(st.direct, "joined"); x.bytes() != direct.bytes() {
			t.Errorf("%s: the server itself answers otherwise when all comes in one: got\n%s\nwant\n%s", as, x.text(true), direct.text(true))
		}
	}
	want := direct
	for _, mode := range s.modes {
		proxy := st.proxy[mode]
		if s.tls {
			proxy = st.tls[mode]
		}
		x := follow(proxy, mode)
		if s.differs != "" && want == direct {
			if x.bytes() == direct.bytes() {
				t.Errorf("%s: the case says that the proxy differs, and it does not", as)
			}
			want = x
			pin(answer{as, version, true}, x)
			continue
		}
		if s.loose == "" && x.bytes() != want.bytes() {
			t.Errorf("%s, %s: through the proxy\n%s\nwant\n%s", as, mode, x.text(true), want.text(true))
		}
	}
	return got
}
