package config

import (
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// A Gate binds partitions to the holders of their elections.
type Gate struct {
	// Name is what consumers call it; unique.
	Name string
	// Election is the template of the partitions' elections.
	Election string
	// Permit, ValidateEvery and Max are guard.GateConfig's.
	Permit, ValidateEvery time.Duration
	Max                   int
	// Grace is how long a binding made by HTTP outlives the last word of its consumer; zero
	// means Permit.
	Grace time.Duration
	// Pos is where the file says so.
	Pos Pos
}

// gates reads the gates.
func (r *reader) gates(f *field, c *Config) {
	if f == nil {
		return
	}
	for _, item := range f.list() {
		o := item.object()
		g := Gate{Pos: o.pos, Permit: guard.DefaultPermitFor, Max: guard.DefaultGateMax}
		if f := o.need("name", "what consumers call the gate"); f != nil {
			g.Pos = f.pos
			if s, ok := f.text(); ok {
				if strings.ContainsAny(s, "/:") || election.CheckID(s) != nil {
					f.mistake("%q: letters, digits and . _ - make a gate's name", s)
				}
				if slices.ContainsFunc(c.Gates, func(o Gate) bool { return o.Name == s }) {
					f.mistake("%q is already the name of a gate", s)
				}
				g.Name = s
			}
		}
		if f := o.need("election", "the template of its partitions' elections, for instance orders-{partition}"); f != nil {
			if s, ok := f.text(); ok {
				if _, err := guard.ParseGateElection(s); err != nil {
					f.mistake("%v", err)
				}
				g.Election = s
			}
		}
		if f := o.take("permit"); f != nil {
			g.Permit = f.duration(election.MinTTL, time.Hour)
		}
		g.ValidateEvery = min(guard.DefaultValidateEvery, g.Permit/3)
		if f := o.take("validate_every"); f != nil {
			g.ValidateEvery = f.duration(10*time.Millisecond, time.Hour)
			if g.Permit > 0 && g.ValidateEvery > g.Permit/2 {
				f.mistake("must be at most half of permit (%v)", g.Permit)
			}
		}
		if f := o.take("max"); f != nil {
			g.Max = f.number(1, 1_000_000)
		}
		if f := o.take("grace"); f != nil {
			g.Grace = f.duration(0, 24*time.Hour)
		}
		o.close()
		c.Gates = append(c.Gates, g)
	}
}

// gateCommands reads which gates the clients of a listener for Redis use by FENCE GATE.
func (r *reader) gateCommands(o *object, l *Listener, gates []Gate) {
	f := o.take("gate_commands")
	if f == nil {
		return
	}
	if l.Protocol == Postgres {
		f.mistake("is for redis and valkey only; every program can use gates over HTTP on the admin listener")
	}
	for _, item := range f.list() {
		s, ok := item.text()
		if !ok {
			continue
		}
		if !slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == s }) {
			item.mistake("%q is not the name of one of the gates", s)
		}
		l.GateCommands = append(l.GateCommands, s)
	}
}

// reached checks that somebody reaches the gates.
func (r *reader) reached(c *Config) {
	if len(c.Gates) == 0 || c.Admin.Listen != "" || slices.ContainsFunc(c.Listeners, func(l Listener) bool { return len(l.GateCommands) > 0 }) {
		return
	}
	r.mistake(c.Gates[0].Pos, "gates", "nobody reaches a gate: add an admin listener, or gate_commands to a listener for Redis")
}
