package pg

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A fakeLead is a leadership that tests switch on and off.
type fakeLead struct{ leads bool }

func (l *fakeLead) Election() string { return "orders" }

func (l *fakeLead) Credential() (guard.Credential, bool) {
	t, _ := election.ParseToken(testToken)
	return guard.Credential{Election: "orders", Token: t}, l.leads
}

func (l *fakeLead) Refusal() *guard.Refusal {
	return &guard.Refusal{Reason: guard.NotElected, Election: "orders", Rules: 12, Leader: "host-b"}
}

// A tokenLead is a leadership that tests hand a token to.
type tokenLead struct {
	fakeLead
	token atomic.Pointer[election.Token]
}

func (l *tokenLead) Credential() (guard.Credential, bool) {
	t := l.token.Load()
	if t == nil {
		return guard.Credential{}, false
	}
	return guard.Credential{Election: "orders", Token: *t}, true
}

// A session that stays becomes a writer when its listener begins to lead, as soon as the bind
// succeeds; until then it reads, and is not held up by what is tried for it.
func TestSidecarSession(t *testing.T) {
	lead := new(tokenLead)
	r := newRig(t, func(c *Config) { c.Lead = lead })
	c := r.connect("")
	wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), "25006", "is ruled by number 12", `held by "host-b"`)

	r.guard.mu.Lock()
	r.guard.bindErr = errors.New("the control connection is out of reach")
	r.guard.mu.Unlock()
	token := r.guard.lead()
	lead.token.Store(&token)
	for range 30 {
		if got := queryString(t, c, "SELECT count(*)::text FROM t"); got != "0" {
			t.Error(got)
		}
	}
	wantError(t, try(t, c, "INSERT INTO t VALUES (1)"), "FP004")
	r.guard.mu.Lock()
	if n := r.guard.admits; n == 0 || n > 5 {
		t.Errorf("%d admissions", n)
	}
	r.guard.bindErr = nil
	r.guard.mu.Unlock()
	testenv.Within(t, 10*time.Second, "the session writes", func() bool { return try(t, c, "INSERT INTO t VALUES (1)") == nil })
	if got := queryString(t, c, "SHOW fence.status"); got != "bound" {
		t.Error(got)
	}
	if got := c.PgConn().ParameterStatus("default_transaction_read_only"); got != "off" {
		t.Error(got)
	}

	// One that begins now is bound at its login, and target_session_attrs finds it.
	other := r.connect("&target_session_attrs=read-write")
	mustExec(t, other, "INSERT INTO t VALUES (2)")

	lead.token.Store(nil)
	r.guard.lead()
	r.guard.endPermits(guard.Stale)
	wantError(t, waitClosed(t, c), "FP001", `"w2"`)
	wantError(t, try(t, r.connect(""), "INSERT INTO t VALUES (3)"), "25006")
	if got := r.rows(); got != "1,2" {
		t.Errorf("rows %s", got)
	}
}
