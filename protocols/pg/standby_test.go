package pg

import (
	"context"
	"encoding/binary"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/guard/pgfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A pair is a proxy before a primary and its streaming standby.
type pair struct {
	*rig
	standby *servers.Process
}

// newPair lists the standby first: whoever wants the primary must pass it over.
func newPair(t *testing.T, change func(*Config)) *pair {
	t.Helper()
	p := &pair{rig: newRigAt(t, testenv.Postgres(t, servers.PostgresOptions{}), nil)}
	p.standby = testenv.Standby(t, p.pg, servers.PostgresOptions{})
	p.behind(change)
	return p
}

// behind serves another proxy before the two.
func (p *pair) behind(change func(*Config)) {
	p.t.Helper()
	prober, err := pgfence.NewProber(p.pg.DSN(servers.Superuser, "postgres"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(prober.Close)
	p.serve(func(c *Config) {
		c.Upstream = p.standby.Addr + "," + p.pg.Addr
		c.Prober = prober
		if change != nil {
			change(c)
		}
	})
}

func isStandby(t *testing.T, c *pgx.Conn) bool {
	t.Helper()
	return queryString(t, c, "SELECT pg_is_in_recovery()::text") == "true"
}

// A session that landed on a standby reads, and is never bound, though everything else
// would let it: it would outlive the promotion of its server out of a takeover's sight.
func TestNobodyBindsOnAStandby(t *testing.T) {
	p := newPair(t, func(c *Config) { c.TargetSessionAttrs = StandbySession })
	p.guard.control = nil // a binder that believes everything
	c := p.connect("&fence.token=" + p.guard.lead().Reveal())
	if !isStandby(t, c) {
		t.Fatal("not on the standby")
	}
	if got := queryString(t, c, "SHOW fence.status"); got != "reader" || p.guard.binds != 0 {
		t.Errorf("%s, after %d binds", got, p.guard.binds)
	}
	wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), "FP007", "standby")
	wantError(t, try(t, c, "SET fence.token = '"+p.guard.leader.Reveal()+"'"), "FP007", "standby")
	if got := queryString(t, c, "SELECT count(*)::text FROM t"); got != "0" {
		t.Error(got)
	}
}

// The proxy finds servers by their kind, and clients find out the truth through it:
// what libpq and pgx ask for with target_session_attrs, at the one proxy or at two.
func TestTargetSessionAttrs(t *testing.T) {
	p := newPair(t, func(c *Config) { c.TargetSessionAttrs = PrimarySession })
	primary := p.addr
	p.behind(func(c *Config) { c.TargetSessionAttrs = StandbySession })
	standby := p.addr
	token := p.guard.lead().Reveal()
	for _, c := range []struct {
		addr, token, attrs string
		ok                 bool
	}{
		{primary, "", "any", true}, {primary, "", "read-only", true}, {primary, "", "primary", true},
		{primary, "", "read-write", false}, {primary, "", "standby", false}, {primary, "", "prefer-standby", true},
		{primary, token, "any", true}, {primary, token, "read-write", true}, {primary, token, "primary", true},
		{primary, token, "read-only", false}, {primary, token, "standby", false}, {primary, token, "prefer-standby", true},
		{standby, "", "any", true}, {standby, "", "read-only", true}, {standby, "", "standby", true},
		{standby, "", "prefer-standby", true}, {standby, "", "read-write", false}, {standby, "", "primary", false},
		{standby, token, "read-write", false}, {standby, token, "read-only", true},
		{standby + "," + primary, token, "read-write", true}, {standby + "," + primary, token, "primary", true},
		{standby + "," + primary, "", "primary", true}, {primary + "," + standby, "", "standby", true},
		{primary + "," + standby, "", "prefer-standby", true}, {standby + "," + primary, "", "read-write", false},
	} {
		dsn := "postgres://app@" + c.addr + "/" + p.db + "?sslmode=disable&target_session_attrs=" + c.attrs
		if c.token != "" {
			dsn += "&options=-c%20fence.token%3D" + c.token
		}
		conn, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			is := isStandby(t, conn)
			if c.attrs == "primary" && is || c.attrs == "standby" && !is || c.attrs == "prefer-standby" && !is && strings.Contains(c.addr, ",") {
				t.Errorf("pgx: %s at %s: standby is %v", c.attrs, c.addr, is)
			}
			_ = conn.Close(t.Context())
		}
		if (err == nil) != c.ok {
			t.Errorf("pgx: %s at %s, token %v: %v", c.attrs, c.addr, c.token != "", err)
		}
		out, err := exec.CommandContext(t.Context(), "psql", "-X", "-A", "-t", "-c", "SELECT pg_is_in_recovery()", dsn).CombinedOutput()
		if (err == nil) != c.ok {
			t.Errorf("psql: %s at %s, token %v: %s", c.attrs, c.addr, c.token != "", out)
		}
	}
}

// A server that takes over is found without a restart, by new sessions and by the control
// connections; sessions on it stay what they were.
func TestFailover(t *testing.T) {
	p := newPair(t, func(c *Config) { c.TargetSessionAttrs = ReadWriteSession })
	token := p.guard.lead().Reveal()
	leader := p.connect("&fence.token=" + token)
	mustExec(t, leader, "INSERT INTO t VALUES (1)")
	if isStandby(t, leader) {
		t.Fatal("on the standby")
	}
	root := connect(t, p.standby.DSN(servers.Superuser, p.db))
	eventually(t, func() bool { return queryString(t, root, "SELECT count(*)::text FROM t") == "1" })
	p.guard.control = nil // of the server that goes
	p.pg.Kill()
	if err := try(t, leader, "INSERT INTO t VALUES (2)"); err == nil {
		t.Fatal("written to a server that is gone")
	}
	if _, err := pgx.Connect(t.Context(), p.dsn("")); err == nil {
		t.Error("connected to a standby as to a primary")
	} else {
		wantError(t, err, "08006", "read-write")
	}
	mustExec(t, root, "SELECT pg_promote()")
	eventually(t, func() bool {
		c, err := pgx.Connect(t.Context(), p.dsn("&fence.token="+token))
		if err != nil {
			return false
		}
		defer c.Close(context.Background())
		mustExec(t, c, "INSERT INTO t VALUES (2)")
		return true
	})
	if got := queryString(t, root, "SELECT string_agg(a::text, ',' ORDER BY a) FROM t"); got != "1,2" {
		t.Error(got)
	}
}

// A request to cancel goes to the server that the session is on, though another is
// first; and where no session is known, to each.
func TestCancelAmongServers(t *testing.T) {
	p := newPair(t, func(c *Config) { c.TargetSessionAttrs = PrimarySession })
	cancel := func(c *pgx.Conn, addr string) {
		mustStart := make(chan error, 1)
		go func() {
			_, err := c.Exec(context.Background(), "SELECT pg_sleep(60)")
			mustStart <- err
		}()
		eventually(t, func() bool {
			return queryString(t, p.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE state='active' AND query LIKE '%pg_sleep(60)%' AND pid=$1", int32(c.PgConn().PID())) == "1"
		})
		r := dial(t, addr)
		key := c.PgConn().SecretKey()
		r.send(slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(12+len(key))), binary.BigEndian.AppendUint32(nil, codeCancel),
			binary.BigEndian.AppendUint32(nil, c.PgConn().PID()), key))
		r.rest()
		wantError(t, <-mustStart, "57014")
	}
	c := p.connect("")
	cancel(c, p.addr)
	p.behind(nil) // another proxy
	cancel(c, p.addr)
}
