package config

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// Elect says that a listener campaigns in an election itself, for clients that present no
// credential.
type Elect struct {
	// Election is the election's id.
	Election string
	// Owner is the candidate's name; empty means election.DefaultOwner().
	Owner string
	// TTL, RenewEvery and HoldOff are those of election.ElectorConfig; zero means its defaults.
	TTL, RenewEvery, HoldOff time.Duration
	// Pos is where the file says so.
	Pos Pos
}

// elect reads whether a listener campaigns. It comes after elections.
func (r *reader) elect(f *field, l *Listener, others []Listener) {
	if f == nil {
		return
	}
	o := f.object()
	e := &Elect{Pos: f.pos}
	if f := o.need("election", "the election that the listener campaigns in"); f != nil {
		if s, ok := f.text(); ok {
			if err := election.CheckID(s); err != nil {
				f.mistake("%v", err)
				s = ""
			}
			e.Election = s
		}
	}
	if f := o.take("owner"); f != nil {
		e.Owner, _ = f.text()
	}
	for _, k := range []struct {
		name string
		to   *time.Duration
	}{{"ttl", &e.TTL}, {"renew_every", &e.RenewEvery}, {"hold_off", &e.HoldOff}} {
		if f := o.take(k.name); f != nil {
			*k.to = f.duration(election.MinTTL, election.MaxTTL)
		}
	}
	o.close()
	if e.Election == "" {
		return
	}
	if err := (election.ElectorConfig{Election: e.Election, Owner: e.Owner, TTL: e.TTL, Heartbeat: e.RenewEvery, HoldOff: e.HoldOff}).Check(); err != nil {
		text := err.Error()
		if beat := new(election.HeartbeatError); errors.As(err, &beat) {
			text = beat.Say("renew_every")
		}
		f.mistake("%s", text)
	}
	// What a client's token is for where it names no election is what the others write for.
	switch {
	case l.Election != "" && l.Election != e.Election:
		f.mistake("campaigns in election %q, and the listener's own is %q: one listener has one of them", e.Election, l.Election)
	case len(l.Elections) > 0 && !l.Serves(e.Election):
		f.mistake("%q is not among the listener's elections", e.Election)
	default:
		l.Election = e.Election
	}
	for _, other := range others {
		if x := other.Elect; x != nil && x.Election == e.Election && (x.Owner != e.Owner || x.TTL != e.TTL || x.RenewEvery != e.RenewEvery || x.HoldOff != e.HoldOff) {
			f.mistake("differs from that of listener %s on line %d: the process campaigns in election %q once", other.Name, x.Pos.Line, e.Election)
			break
		}
	}
	l.Elect = e
}

// holdsOff checks that the election backend can hold an election off, where that is asked for.
func (r *reader) holdsOff(c *Config) {
	scheme, _, _ := strings.Cut(c.Elections.Backend.Reveal(), ":")
	kind, _, _ := strings.Cut(scheme, "+")
	if scheme == "" || slices.Contains([]string{"redis", "rediss", "valkey", "valkeys", "unix"}, kind) {
		return
	}
	for i, l := range c.Listeners {
		if l.Elect != nil && l.Elect.HoldOff > 0 {
			r.mistake(l.Elect.Pos, "listeners["+strconv.Itoa(i)+"].elect.hold_off", "elections are kept by %s, which cannot hold one off: only Redis and Valkey can", kind)
		}
	}
}
