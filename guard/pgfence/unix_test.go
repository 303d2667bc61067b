package pgfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func (c *cluster) connectUnix(t testing.TB, dir string) session {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s port=%d user=app dbname=postgres", dir, c.p.Port()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return session{conn}
}

// A pooler takes clients at a Unix socket and passes what they say on to the server's,
// and the server's process ids back.
func pooler(t testing.TB, to string, port int) (dir string) {
	t.Helper()
	dir, err := servers.NewDir("pooler")
	must(t, err)
	name := fmt.Sprintf(".s.PGSQL.%d", port)
	l, err := net.Listen("unix", filepath.Join(dir, name))
	must(t, err)
	testenv.Relay(t, l, filepath.Join(to, name), nil, nil)
	return dir
}

// SAFETY: the proxy's own Unix socket is proven. To the server a pooler's connection looks
// like any by a Unix socket, and the pooler passes the true process id on; a session bound
// through one could be shared with others.
func TestUnixSocketIsProven(t *testing.T) {
	c := install(t, testenv.Postgres(t, servers.PostgresOptions{}))
	f := c.fence(t, pgfence.DefaultRole)
	x, _ := guardtest.Term("e", 7)
	r := guardtest.Record(x, guard.Severed, 1)
	must(t, f.Swap(t.Context(), "e", guard.Record{}, r))

	direct := c.connectUnix(t, c.p.Dir)
	pooled := c.connectUnix(t, pooler(t, c.p.Dir, c.p.Port()))
	good := direct.backend()
	if good.Listener != c.p.PID() {
		t.Fatalf("process %d listens, found %d", c.p.PID(), good.Listener)
	}
	none := good
	none.Listener = 0
	alien := good
	alien.PID = uint32(c.count(t, "SELECT pg_backend_pid()")) // by TCP
	for name, b := range map[string]struct {
		b    pgfence.Backend
		want error
	}{
		"a pooler":                       {pooled.backend(), pgfence.ErrPooler},
		"nobody knows":                   {none, pgfence.ErrUnproven},
		"another's, by TCP":              {alien, pgfence.ErrPooler},
		"the server itself":              {pgfence.Backend{PID: uint32(c.p.PID()), Listener: c.p.PID()}, pgfence.ErrPooler},
		"no such process":                {pgfence.Backend{PID: 1 << 30, Listener: c.p.PID()}, pgfence.ErrUnproven},
		"the process, another's servant": {pgfence.Backend{PID: good.PID, Listener: 1}, pgfence.ErrPooler},
	} {
		_, err := f.Bind(t.Context(), b.b, x, r)
		var refused *guard.Refusal
		if !errors.Is(err, b.want) || !errors.As(err, &refused) || refused.Reason != guard.Unseverable {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := c.count(t, "SELECT count(*) FROM fenceproxy.session"); n != 0 {
		t.Errorf("%d sessions bound", n)
	}

	b, err := f.Bind(t.Context(), good, x, r)
	must(t, err)
	if b.PreparedTransactions {
		t.Error("the server allows no prepared transactions")
	}
	if _, err := f.Bind(t.Context(), c.session(t, "app").backend(), x, r); err != nil {
		t.Error(err)
	}
	must(t, direct.Write(t.Context()))
}
