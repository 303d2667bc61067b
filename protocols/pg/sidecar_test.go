package pg

import (
	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
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
