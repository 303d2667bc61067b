package testenv

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// A Version is one major version of Postgres.
type Version struct {
	// Major is 14, 15 and so on.
	Major int
	// Bin is the directory of its programs: postgres, initdb and pg_ctl. psql and
	// pg_dump may be of another version.
	Bin string
}

// String names it as a subtest: "postgres14".
func (v Version) String() string { return fmt.Sprintf("postgres%d", v.Major) }

// PostgresVersions returns every major version of Postgres that fenceproxy is tested
// with. One that this machine lacks fails the test.
func PostgresVersions(t testing.TB) []Version {
	t.Helper()
	var all []Version
	for _, major := range servers.PostgresMajors() {
		all = append(all, PostgresVersion(t, major))
	}
	return all
}

// PostgresVersion returns one major version of Postgres; lacking it fails the test. Its
// Bin goes into servers.PostgresOptions.
func PostgresVersion(t testing.TB, major int) Version {
	t.Helper()
	bin, err := servers.FindPostgresMajor(major)
	if err != nil {
		t.Fatal(err)
	}
	return Version{Major: major, Bin: bin}
}

// EachPostgres runs f as a subtest of each version, one after the other, on that version's
// shared server.
func EachPostgres(t *testing.T, f func(t *testing.T, v Version, p *servers.Process)) {
	t.Helper()
	for _, v := range PostgresVersions(t) {
		t.Run(v.String(), func(t *testing.T) { f(t, v, SharedPostgresVersion(t, v.Major)) })
	}
}

var sharedVersions struct {
	sync.Mutex
	started map[int]func() (*servers.Process, error)
}

// SharedPostgresVersion returns the package's one server of a major version, started at
// the first call, with max_prepared_transactions=10. Tests keep apart by databases and
// names. The package's TestMain must call Main.
func SharedPostgresVersion(t testing.TB, major int) *servers.Process {
	t.Helper()
	v := PostgresVersion(t, major)
	sharedVersions.Lock()
	if sharedVersions.started == nil {
		sharedVersions.started = make(map[int]func() (*servers.Process, error))
	}
	start := sharedVersions.started[major]
	if start == nil {
		// Tests that run at the same time start their servers at the same time.
		start = sync.OnceValues(func() (*servers.Process, error) {
			p, err := servers.StartPostgres(context.Background(), servers.PostgresOptions{
				Bin: v.Bin, Templates: Templates(),
				Settings: []string{"max_prepared_transactions=10"},
			})
			if err != nil {
				return nil, err
			}
			shared.Lock()
			defer shared.Unlock()
			shared.all = append(shared.all, p)
			return p, nil
		})
		sharedVersions.started[major] = start
	}
	sharedVersions.Unlock()
	p, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
