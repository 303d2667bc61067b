package pg

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A session that is not bound when it has logged in is told why and ended, and none of its
// client's bytes have gone upstream.
func TestCoreTurnsAway(t *testing.T) {
	for name, decisions := range map[string][]string{"no token": nil, "a stale one": {"stale"}} {
		d := newDriver()
		d.c.required = true
		if d.decisions = decisions; decisions != nil {
			d.c.token = mustToken(t)
		}
		d.client(appendQuery(nil, "SELECT 1")) // too early, as no client may
		d.server([]byte("R\x00\x00\x00\x08\x00\x00\x00\x00"))
		d.server(appendMessage(nil, 'S', "default_transaction_read_only", "on"))
		d.server([]byte("K\x00\x00\x00\x0c\x00\x00\x00\x07\x00\x00\x00\x09"))
		d.server([]byte("Z\x00\x00\x00\x05I"))
		d.client(appendQuery(nil, "SELECT 2"))
		if !d.serverOver || bytes.Contains(d.up, []byte("SELECT")) {
			t.Errorf("%s: over %v, up %q", name, d.serverOver, d.up)
		}
		if !bytes.Contains(d.down, []byte("FATAL")) || bytes.Contains(d.down, []byte("Z\x00\x00\x00\x05I")) {
			t.Errorf("%s: %q", name, d.down)
		}
	}
}

func mustToken(t *testing.T) election.Token {
	t.Helper()
	tok, err := election.ParseToken(testToken)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// refusedAtConnect connects, which must be refused with that SQLSTATE, and all the texts.
func refusedAtConnect(t *testing.T, dsn, state string, texts ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err == nil {
		_ = c.Close(context.Background())
		t.Fatal("connected")
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Severity != "FATAL" || e.Code != state {
		t.Fatalf("got %v, want %s", err, state)
	}
	for _, s := range texts {
		if !strings.Contains(e.Message+e.Detail+e.Hint, s) {
			t.Errorf("%q is missing in %+v", s, e)
		}
	}
}

func TestBindRequiredAndExclusive(t *testing.T) {
	var exclusive *guard.Exclusive
	r, b := realRig(t, func(c *Config, b election.Backend) {
		var err error
		exclusive, err = guard.NewExclusive(b, false, guard.GateConfig{Name: "postgres", PermitFor: 5 * time.Second, ValidateEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		c.Exclusive, c.RequireBound = Hold(exclusive), true
	})
	t.Cleanup(exclusive.Close)

	refusedAtConnect(t, r.dsn(""), "28000", "no live token", "bound sessions alone")
	refusedAtConnect(t, r.dsn("&fence.token="+testToken), "FP002", "nobody leads", "bound sessions alone")
	first := acquire(t, b, r.db, "w1")
	token := "&fence.token=" + first.Token.Reveal()
	c := r.connect(token)
	mustExec(t, c, "INSERT INTO t VALUES (1)")
	refusedAtConnect(t, r.dsn(token), "FP011", "bound already", `held by "w1"`, "exclusive")
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c = r.connect(token) // at once: its own last moments do not stand in the way
	mustExec(t, c, "INSERT INTO t VALUES (2)")

	if _, err := b.Resign(t.Context(), r.db, first.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	second := acquire(t, b, r.db, "w2")
	next := r.connect("&fence.token=" + second.Token.Reveal())
	mustExec(t, next, "INSERT INTO t VALUES (3)")
	if err := try(t, c, "INSERT INTO t VALUES (4)"); err == nil {
		t.Error("a stale session writes")
	}
	refusedAtConnect(t, r.dsn(token), "FP001", `"w2"`)
	testenv.Eventually(t, "the rows are there", func() bool { return r.rows() == "1,2,3" })
}
