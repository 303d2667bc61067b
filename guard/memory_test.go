package guard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
)

// One leader after the other, over a real backend.
func TestLeadersInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := memory.New(), &fakeFence{}
		defer func() { _ = b.Close() }()
		g := guard.New(b, f, guard.Config{})
		defer g.Close()
		lead := func(after int64) (*guard.Permit, election.Token) {
			a, err := b.Acquire(t.Context(), elec, election.AcquireOptions{Owner: "me", TTL: 3 * time.Second})
			if err != nil || a.Status != election.Acquired || a.Number <= after {
				t.Fatalf("%+v, %v", a, err)
			}
			return admit(t, g, a.Token), a.Token
		}
		p, tok := lead(0)
		for range 10 {
			time.Sleep(time.Second)
			if r, err := b.Renew(t.Context(), elec, tok); err != nil || r.Status != election.Renewed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if !p.Live() {
			t.Fatalf("ended: %v", p.Err())
		}
		time.Sleep(3 * time.Second) // not renewed
		if p.Live() {
			t.Error("outlives its lease")
		}
		refused(t, p.Err(), guard.LeaseVacant)
		q, tok2 := lead(p.Term().Number)
		_, err := g.Admit(t.Context(), cred(tok))
		if r := refused(t, err, guard.Stale); r.Rules != q.Term().Number || r.Leader != "me" {
			t.Errorf("%+v", r)
		}
		if _, err := b.Resign(t.Context(), elec, tok2, election.ResignOptions{}); err != nil {
			t.Fatal(err)
		}
		<-q.Done()
		r, _ := lead(q.Term().Number)
		if !r.Live() || f.record().Highest != r.Term().Number {
			t.Errorf("fence %+v", f.record())
		}
		for _, p := range []*guard.Permit{p, q, r} {
			p.Release()
		}
	})
}
