// Package testenv gives tests the real servers they talk to: processes of their
// own, in a temporary directory, on free ports, ended with the test. A server
// that the machine lacks fails the test; it never skips it.
package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// Main runs a package's tests, ends the shared servers and checks that no
// goroutine was left behind. Call it from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	for _, p := range shared.all {
		p.Stop()
	}
	shared.all = nil
	shared.Unlock()
	if code == 0 {
		err := goleak.Find()
		// Each look takes half a second. A closed go-redis pool that could not connect
		// sleeps for up to a second before it ends.
		for look := 0; err != nil && look < 5; look++ {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

var shared struct {
	sync.Mutex
	all               []interface{ Stop() }
	pg, redis, valkey *servers.Process
}

// Redis starts a Redis server of the test's own; args are appended to its command
// line.
func Redis(t testing.TB, args ...string) *servers.Process {
	t.Helper()
	p, err := servers.StartRedis(Context(t), servers.RedisOptions{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p) })
	return p
}

// Postgres starts a Postgres server of the test's own.
func Postgres(t testing.TB, o servers.PostgresOptions) *servers.Process {
	t.Helper()
	o.Templates = Templates()
	p, err := servers.StartPostgres(Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p) })
	return p
}

// Templates is where fresh clusters of this user's tests are kept for copying.
func Templates() string {
	return filepath.Join(os.TempDir(), "fenceproxy-templates-"+strconv.Itoa(os.Geteuid()))
}

// Standby starts a streaming standby of a Postgres server.
func Standby(t testing.TB, primary *servers.Process, o servers.PostgresOptions) *servers.Process {
	t.Helper()
	p, err := servers.StartStandby(Context(t), primary, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p) })
	return p
}

// SharedRedis returns the package's one Redis server, started at the first call.
// Tests keep apart by key names. The package's TestMain must call Main.
func SharedRedis(t testing.TB) *servers.Process {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.redis == nil {
		p, err := servers.StartRedis(context.Background(), servers.RedisOptions{})
		if err != nil {
			t.Fatal(err)
		}
		shared.redis = p
		shared.all = append(shared.all, p)
	}
	return shared.redis
}

// SharedPostgres returns the package's one Postgres server, started at the first
// call. Tests keep apart by databases and names. The package's TestMain must call
// Main.
func SharedPostgres(t testing.TB) *servers.Process {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.pg == nil {
		p, err := servers.StartPostgres(context.Background(), servers.PostgresOptions{
			Templates: Templates(), Settings: []string{"max_prepared_transactions=10"},
		})
		if err != nil {
			t.Fatal(err)
		}
		shared.pg = p
		shared.all = append(shared.all, p)
	}
	return shared.pg
}

// Context returns a context that ends with the test, or some time before go test's own
// deadline: a tenth of what is left, at most a minute.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx := t.Context()
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok {
			c, cancel := context.WithDeadline(ctx, at.Add(-min(time.Minute, time.Until(at)/10)))
			t.Cleanup(cancel)
			return c
		}
	}
	return ctx
}

// Name returns a name that no other test uses: lower-case letters and digits.
func Name(t testing.TB, prefix string) string {
	t.Helper()
	return prefix + strings.ToLower(rand.Text()[:10])
}

func end(t testing.TB, p *servers.Process) {
	p.Stop()
	if t.Failed() {
		t.Logf("%s said:\n%s", p.Name, p.Log())
	}
}

// Tool returns the path of a client program: next to the Postgres server's, or on PATH.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if pg, err := servers.FindPostgres(); err == nil {
		bin := filepath.Join(filepath.Dir(pg), name)
		if _, err := os.Stat(bin); err == nil {
			return bin
		}
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v (make deps installs it)", err)
	}
	return bin
}
