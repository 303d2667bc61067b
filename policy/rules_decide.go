package policy

import (
	"fmt"
	"slices"
)

// A Match is what the rules say of one name. It is used again and again: what it holds is
// valid until the next Find with it.
type Match struct {
	// Access is Fenced where Election says under which, Open, or Deny, where Why says why.
	Access Access
	// Election is the election that rules the name.
	Election []byte
	// Rule is the rule that matched, or -1.
	Rule int
	why  matchTrouble
	err  error
	at   captures
}

// matchTrouble says why a name is denied.
type matchTrouble uint8

const (
	denied    matchTrouble = iota + 1 // by a rule
	unruled                           // no rule matches it
	badChoice                         // the rule makes no valid election of it
)

// FindKey says which rule rules a key. It allocates nothing, once m has been used. That
// what a rule makes of the key is an election's name is for Verify to see: nobody can hold
// another.
func (r *Rules) FindKey(key []byte, m *Match) {
	for i := range r.rules {
		c := &r.rules[i]
		if c.Kind != Key {
			continue
		}
		for j := range c.forms {
			f := &c.forms[j]
			if f.parts[0].match(key, &m.at) {
				r.found(i, f, key, nil, m)
				return
			}
		}
	}
	r.unfound(m)
}

// unfound is the answer for what no rule matches.
func (r *Rules) unfound(m *Match) {
	m.Rule, m.Access, m.why, m.err = -1, Fenced, 0, nil
	m.Election = append(m.Election[:0], r.fallback...)
	if r.fallback == "" {
		m.Access, m.why = Deny, unruled
	}
}

// found is the answer of rule i, by the captures in m of the name's two parts.
func (r *Rules) found(i int, f *form, first, second []byte, m *Match) {
	c := &r.rules[i]
	m.Rule, m.Access, m.why, m.err = i, c.Access, 0, nil
	m.Election = m.Election[:0]
	switch {
	case c.Access == Deny:
		m.why = denied
		return
	case c.Access == Open:
		return
	}
	nth := 0
	for _, p := range c.elections.parts {
		if !p.name {
			m.Election = append(m.Election, p.text...)
			continue
		}
		n := f.from[nth]
		nth++
		part := first
		if n >= len(f.parts[0].captures) {
			part = second
		}
		m.Election = append(m.Election, part[m.at[n].at:m.at[n].end]...)
	}
}

// Verify denies what a rule makes no valid election of.
//
// INVARIANT: what is no election's name rules nothing: nobody may write it.
func (r *Rules) Verify(m *Match) {
	if m.Access != Fenced || m.Rule < 0 || r.rules[m.Rule].constant {
		return // it was checked when the rules were made
	}
	if err := r.checkBytes(m.Election); err != nil {
		m.Access, m.why, m.err = Deny, badChoice, err
	}
}

// maxElection is longer than any election's name. What is longer is not made a string of.
const maxElection = 1024

func (r *Rules) checkBytes(election []byte) error {
	if len(election) > maxElection {
		return fmt.Errorf("it is %d bytes long", len(election))
	}
	return r.check(string(election))
}

// Why says why what m is about may be written by nobody, and what to do. of is the target's
// name.
func (r *Rules) Why(m *Match, of string) string {
	switch m.why {
	case denied:
		return fmt.Sprintf("%s denies writing %s to everybody", r.name(m.Rule), of)
	case unruled:
		return fmt.Sprintf("no rule matches %s, and the listener has no election for the rest: add a rule for it", of)
	case badChoice:
		return fmt.Sprintf("%s makes no valid election of %s: %v", r.name(m.Rule), of, m.err)
	}
	return ""
}

// Decide says which elections the writes of all targets need. Nothing written is open.
func (r *Rules) Decide(targets []Target) Decision {
	d := Decision{Rule: -1, Open: true}
	first := true
	var m Match
	for _, t := range targets {
		one := r.decideOne(t, &m)
		if one.Deny {
			return one
		}
		if first && one.Open {
			d.Rule = one.Rule
		}
		d.add(one)
		first = false
	}
	return d
}

// add takes in the decision on one more target, which denies nothing.
func (d *Decision) add(one Decision) {
	for _, e := range one.Elections {
		if !slices.Contains(d.Elections, e) {
			d.Elections = append(d.Elections, e)
		}
	}
	if d.Open && !one.Open {
		d.Rule, d.Open = one.Rule, false
	}
}

// Finding is what the rules say of one target, for people.
type Finding struct {
	Target Target
	Decision
}

// Explain is Decide for each target by itself.
func (r *Rules) Explain(targets []Target) []Finding {
	var m Match
	all := make([]Finding, 0, len(targets))
	for _, t := range targets {
		all = append(all, Finding{t, r.decideOne(t, &m)})
	}
	return all
}

func (r *Rules) decideOne(t Target, m *Match) Decision {
	switch {
	case t.Kind == Unknown:
		return r.everything(t.What)
	case t.AnySchema || t.AnyName:
		return r.wide(t, m)
	case t.Kind == Key:
		r.FindKey([]byte(t.Name), m)
	default:
		if !r.findNamed(t, m) && t.Kind == Function {
			return r.everything(t.String() + ", which no rule of functions names,")
		}
	}
	r.Verify(m)
	d := Decision{Rule: m.Rule, Open: m.Access == Open, Deny: m.Access == Deny}
	switch {
	case d.Deny:
		d.Why = r.Why(m, t.String())
	case !d.Open:
		d.Elections = []string{string(m.Election)}
	}
	return d
}

// findNamed is FindKey for what has a schema. It reports whether a rule matched.
func (r *Rules) findNamed(t Target, m *Match) bool {
	schema, name := []byte(t.Schema), []byte(t.Name)
	for i := range r.rules {
		c := &r.rules[i]
		if c.Kind != t.Kind {
			continue
		}
		for j := range c.forms {
			if f := &c.forms[j]; f.matchPart(0, schema, m) && f.matchPart(1, name, m) {
				r.found(i, f, schema, name, m)
				return true
			}
		}
	}
	r.unfound(m)
	return false
}

// matchPart matches one part of a name and leaves its captures in m, after those of the
// parts before.
func (f *form) matchPart(part int, name []byte, m *Match) bool {
	var c captures
	if !f.parts[part].match(name, &c) {
		return false
	}
	before := 0
	for i := range part {
		before += len(f.parts[i].captures)
	}
	copy(m.at[before:], c[:])
	return true
}

// everything decides for what may write anything: it needs all elections that the rules
// name, and the default.
//
// INVARIANT: where a rule names as many elections as there are names, or denies, nobody
// holds them all, and it is refused.
func (r *Rules) everything(what string) Decision {
	d := Decision{Rule: -1}
	for i := range r.rules {
		c := &r.rules[i]
		switch {
		case c.Access == Open:
		case c.Access == Deny:
			return Decision{Rule: i, Deny: true, Why: fmt.Sprintf("it cannot be told what %s writes, and %s denies some of it to everybody: write by statements or commands that name what they write", what, r.name(i))}
		case !c.constant:
			return Decision{Rule: i, Deny: true, Why: fmt.Sprintf("it cannot be told what %s writes, and %s stands for more elections than anybody holds: write by statements or commands that name what they write, or give the rule one election", what, r.name(i))}
		case !slices.Contains(d.Elections, c.Election):
			d.Elections = append(d.Elections, c.Election)
			if d.Rule < 0 {
				d.Rule = i
			}
		}
	}
	if r.fallback != "" && !slices.Contains(d.Elections, r.fallback) {
		d.Elections = append(d.Elections, r.fallback)
	}
	// INVARIANT: rules that only open leave the rest to nobody.
	if len(d.Elections) == 0 {
		return Decision{Rule: -1, Deny: true, Why: fmt.Sprintf("it cannot be told what %s writes, and no rule names an election", what)}
	}
	return d
}

// wide decides for a target of which only a part is known.
func (r *Rules) wide(t Target, m *Match) Decision {
	d, whole := r.wideNamed(t, m)
	if whole {
		return d
	}
	// What is left matches no rule.
	if t.Kind == Function {
		return r.everything(t.String() + ", some of which no rule of functions names,")
	}
	r.unfound(m)
	if m.Access == Deny {
		return Decision{Rule: -1, Deny: true, Why: r.Why(m, "all that "+t.String()+" may be")}
	}
	if !slices.Contains(d.Elections, r.fallback) {
		d.Elections = append(d.Elections, r.fallback)
	}
	d.Open = false
	return d
}

// wideNamed is wide for what rules name: every rule that may match counts, down to the first
// that matches whatever the rest is. It reports whether nothing is left that matches no rule.
func (r *Rules) wideNamed(t Target, m *Match) (Decision, bool) {
	d := Decision{Rule: -1, Open: true}
	known := []bool{!t.AnySchema, !t.AnyName}
	names := [][]byte{[]byte(t.Schema), []byte(t.Name)}
	if t.Kind == Key {
		known, names = known[1:], names[1:]
	}
	for i := range r.rules {
		c := &r.rules[i]
		if c.Kind != t.Kind {
			continue
		}
		for j := range c.forms {
			f := &c.forms[j]
			may, must, told := f.mayMatch(known, names, m)
			if !may {
				continue
			}
			one := Decision{Rule: i, Open: c.Access == Open}
			if c.Access == Fenced && !told {
				return Decision{Rule: i, Deny: true, Why: fmt.Sprintf("%s stands for more elections than anybody holds, and %s may need any of them", r.name(i), t)}, true
			}
			r.found(i, f, names[0], names[len(names)-1], m)
			r.Verify(m)
			if m.Access == Deny {
				one.Deny, one.Why = true, r.Why(m, t.String())
				return one, true
			}
			if !one.Open {
				if e := string(m.Election); !slices.Contains(d.Elections, e) {
					d.Elections = append(d.Elections, e)
				}
			}
			if d.Open && (!one.Open || d.Rule < 0) {
				d.Rule = i
			}
			d.Open = d.Open && one.Open
			if must {
				return d, true
			}
		}
	}
	return d, false
}

// mayMatch reports whether a name with parts that are not known may match, whether it must,
// and whether the captures that the election is made of are in the known parts. Those are
// left in m then.
func (f *form) mayMatch(known []bool, names [][]byte, m *Match) (may, must, told bool) {
	must, told = true, true
	before := 0
	for i := range f.parts {
		p := &f.parts[i]
		if known[i] {
			if !f.matchPart(i, names[i], m) {
				return false, false, false
			}
		} else {
			must = must && p.everything()
			for _, n := range f.from {
				told = told && (n < before || n >= before+len(p.captures))
			}
		}
		before += len(p.captures)
	}
	return true, must, told
}
