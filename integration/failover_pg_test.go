package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// The primary dies and its standby is promoted: a proxy that names both goes on by
// itself. The leader writes on the new primary, the fence went with the data, and the
// leader before stays refused. Meanwhile sessions on the standby only read, and remain
// readers when it is promoted.
func TestPostgresFailover(t *testing.T) {
	ctx := testenv.Context(t)
	url, b := redisElections(t)
	r := newPgResource(t, ctx)
	settings := servers.PostgresOptions{Settings: []string{"max_prepared_transactions=10"}}
	standby := testenv.Standby(t, r.server, settings)
	both := r.server.Addr + "," + standby.Addr
	control := strings.Replace(r.control(), r.server.Addr, both, 1)
	listener := func(attrs string) string {
		return fmt.Sprintf("protocol: postgres\nupstream: [\"%s\", \"%s\"]\ntarget_session_attrs: %s\ncontrol: %s", standby.Addr, r.server.Addr, attrs, control)
	}
	p, readers := testenv.StartProxy(t, url, listener("read-write")), testenv.StartProxy(t, url, listener("prefer-standby"))
	if out := p.Check(t); !strings.Contains(out, "upstream "+standby.Addr+" is a standby; not chosen now") ||
		!strings.Contains(out, "upstream "+r.server.Addr+" is a primary") || strings.Contains(out, "fail ") {
		t.Errorf("check:\n%s", out)
	}

	old, no := lead(t, ctx, b, "e", "old", time.Minute)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.Addr, old), no)
	if _, err := b.Resign(ctx, "e", old.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	c, n := lead(t, ctx, b, "e", "new", time.Hour)
	bound := mustConnect(t, ctx, r, p.Addr, c)
	mustWrite(t, ctx, bound, n)

	// The live token is no use on a standby.
	reader, err := r.connect(ctx, readers.Addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.close()
	conn := reader.(*pgClient).c
	status := func() (status string, standby bool) {
		t.Helper()
		if err := conn.QueryRow(ctx, "select current_setting('fence.status'), pg_is_in_recovery()", pgx.QueryExecModeExec).Scan(&status, &standby); err != nil {
			t.Fatal(err)
		}
		return status, standby
	}
	if s, is := status(); s != "reader" || !is {
		t.Errorf("%s, on a standby: %v", s, is)
	}
	if err := reader.write(ctx, n); err == nil {
		t.Error("written on a standby")
	}

	direct := newDirect(t, ctx, standby.DSN(servers.Superuser, "postgres"))
	testenv.Eventually(t, "the standby has it all", func() bool {
		var got int
		err := direct.QueryRow(ctx, "select count(*) from w where n = $1", n).Scan(&got)
		return err == nil && got == 1
	})
	record := r.fence(t, ctx, "e")
	r.server.Kill()
	if err := bound.write(ctx, n); err == nil {
		t.Error("written on a server that is gone")
	}
	if _, err := direct.Exec(ctx, "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	// Everything now looks at the new one.
	r.direct = direct
	if r.f, err = pgfence.Open(ctx, standby.DSN("fenceproxy", "postgres"), pgfence.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.f.Close)
	start := time.Now()
	var again client
	testenv.Eventually(t, "the leader writes on the new primary", func() bool {
		cl, err := r.connect(ctx, p.Addr, c)
		if err != nil {
			return false
		}
		if err := cl.write(ctx, n); err != nil {
			cl.close()
			return false
		}
		again = cl
		return true
	})
	defer again.close()
	t.Logf("the leader wrote again %v after the promotion", time.Since(start).Round(time.Millisecond))
	if got := r.fence(t, ctx, "e"); got != record {
		t.Errorf("the fence is %+v, was %+v", got, record)
	}
	mustRefuse(t, ctx, r, p.Addr, nil, old, no)

	// A session that was there before the promotion reads on, and nobody writes by it.
	if s, is := status(); s != "reader" || is {
		t.Errorf("%s, on a standby: %v", s, is)
	}
	if err := reader.write(ctx, n); err == nil {
		t.Error("a reader wrote after the promotion of its server")
	}
	// Takeovers go on there.
	if _, err := b.Resign(ctx, "e", c.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	d, nd := lead(t, ctx, b, "e", "next", time.Hour)
	mustWrite(t, ctx, mustConnect(t, ctx, r, p.Addr, d), nd)
	mustRefuse(t, ctx, r, p.Addr, again, c, n)
	if f := r.fence(t, ctx, "e"); f.Highest != nd || f.State != guard.Severed {
		t.Errorf("the fence is %+v, want number %d, severed", f, nd)
	}
	if out := p.Check(t); !strings.Contains(out, "upstream "+standby.Addr+" is a primary") || !strings.Contains(out, "fail ") {
		t.Errorf("check:\n%s", out)
	}
}
