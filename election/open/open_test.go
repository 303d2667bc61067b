package open

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/kubernetes"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/election/postgres"
	"github.com/fenceproxy/fenceproxy/election/redis"
	"github.com/fenceproxy/fenceproxy/election/zookeeper"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestKinds(t *testing.T) {
	for u, want := range map[string]election.Backend{
		"memory:":                            (*memory.Backend)(nil),
		"MEMORY:":                            (*memory.Backend)(nil),
		"redis://u:p@host:1/2":               (*redis.Backend)(nil),
		"rediss://host":                      (*redis.Backend)(nil),
		"valkey://host":                      (*redis.Backend)(nil),
		"valkeys://host":                     (*redis.Backend)(nil),
		"unix:///run/redis.sock":             (*redis.Backend)(nil),
		"redis+cluster://u:p@h1,h2:1":        (*redis.Backend)(nil),
		"valkeys+sentinel://h?master_name=m": (*redis.Backend)(nil),
		"zookeeper://u:p@h1,h2:1/x":          (*zookeeper.Backend)(nil),
		"zookeeper://":                       nil,
		"kubernetes:///x?kubeconfig=" + kubeconfig(t): (*kubernetes.Backend)(nil),
		"kubernetes://x": nil,
		"kubernetes:///x?kubeconfig=/no/such/file": nil,
		"redis+other://h":                          nil,
		"postgres://u:p@host/db":                   (*postgres.Backend)(nil),
		"postgresql://host/db?user=u":              (*postgres.Backend)(nil),
		"postgres://u@host/d?sslmode=off":          nil,
		"memory:x":                                 nil,
		"memory":                                   nil,
		"":                                         nil,
		"://":                                      nil,
		"mysql://u:p@host":                         nil,
		"host=h dbname=d":                          nil,
		"redis:":                                   nil,
	} {
		b, err := Backend(t.Context(), u, Options{})
		if want == nil {
			if err == nil || b != nil {
				t.Errorf("%q: %T, %v", u, b, err)
			}
			continue
		}
		if err != nil || fmt.Sprintf("%T", b) != fmt.Sprintf("%T", want) {
			t.Errorf("%q: %T, %v", u, b, err)
			continue
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Backend(t.Context(), "mysql://host", Options{}); !errors.Is(err, ErrUnknownScheme) {
		t.Error(err)
	}
	if _, err := Backend(t.Context(), "postgres://host/db", Options{Postgres: postgres.Options{Schema: "No!"}}); !errors.Is(err, postgres.ErrInvalidSchema) {
		t.Error(err)
	}
}

// kubeconfig writes one that names a server which need not be there.
func kubeconfig(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {token: t}}],
contexts: [{name: c, context: {cluster: c, user: u}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Safety: whatever is wrong with a URL, its error holds no piece of the password.
func TestErrorsKeepPasswords(t *testing.T) {
	for _, raw := range []string{"redis://user:HUNTER@HUNTER/HUNTER", "redis://user:x/HUNTER@host", "postgres://u:HUNTER@HUNTER:HUNTER/db"} {
		if _, err := Backend(t.Context(), raw, Options{}); err == nil || strings.Contains(err.Error(), "HUNTER") {
			t.Fatalf("%q: %v", raw, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		// The password is of capitals, with anything between; nothing else is.
		part := rapid.StringMatching(`[A-Z]{4}`)
		odd := rapid.SampledFrom([]string{"/", "@", ":", "%", "%zz", "?", "#", "&", "=", " ", "[", "]", "\n", "\x00", "ä", "'", "\\", ",", "5432", ""})
		secret := part.Draw(t, "a") + odd.Draw(t, "x") + part.Draw(t, "b") + odd.Draw(t, "y") + part.Draw(t, "c")
		scheme := rapid.SampledFrom([]string{"redis", "rediss", "valkey", "unix", "redis+cluster", "valkey+sentinel", "zookeeper", "kubernetes", "postgres", "postgresql", "memory", "other", ""}).Draw(t, "scheme")
		form := rapid.SampledFrom([]string{
			"://user:%s@host/0", "://:%s@host", "://user:%s@host:port/x", "://user:%s@", "://%s@host/x?sslmode=x&db=x", "://user:%s@host/x?nonsense=1",
			"://host/x?password=%s", "://host/x?sslpassword=%s&port=x", ":%s", "://user:%s", "://user:%s@h1:1,h2:x/db", "://host/%%zz?passfile=%s",
		}).Draw(t, "form")
		raw := scheme + fmt.Sprintf(form, secret)
		b, err := Backend(t.Context(), raw, Options{})
		if err == nil {
			_ = b.Close()
			return
		}
		text := fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
		for i := 0; i+4 <= len(secret); i++ {
			if p := secret[i : i+4]; strings.ToUpper(p) == p && strings.ToLower(p) != p && strings.Contains(text, p) {
				t.Fatalf("%q: shows %q: %v", raw, p, err)
			}
		}
	})
}

// The URLs of real servers.
func TestServers(t *testing.T) {
	id := testenv.Name(t, "e")
	pg, rd := testenv.SharedPostgres(t), testenv.SharedRedis(t)
	for _, u := range []string{
		pg.DSN(servers.Superuser, "postgres"), "redis://" + rd.Addr, "valkey://" + testenv.Valkey(t).Addr + "/1",
		"zookeeper://" + testenv.SharedZooKeeper(t).Addrs() + "/open",
		"kubernetes:///default?kubeconfig=" + testenv.SharedKubeconfig(t), "memory:",
	} {
		b, err := Backend(t.Context(), u, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := b.(*postgres.Backend); ok {
			if err := p.EnsureSchema(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		g, err := b.Acquire(t.Context(), id, election.AcquireOptions{})
		if err != nil || g.Status != election.Acquired {
			t.Errorf("%s: %+v, %v", u, g, err)
		}
		if v, err := b.Validate(t.Context(), id, g.Token); err != nil || v.Standing != election.StandingCurrent || v.Number != g.Number {
			t.Errorf("%s: %+v, %v", u, v, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
