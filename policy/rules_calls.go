package policy

import "slices"

// Calling decides on calls of functions alone, for a session that the server holds back from
// writing: which elections it has to hold to call those of the targets that a rule of
// functions names, or may name. Calls of functions that no rule names are open.
//
// INVARIANT: what a rule of functions may name is not called without the term that the rule
// says, whatever the function does: a lock that outlasts its statement is no write to the
// server.
func (r *Rules) Calling(targets []Target) Decision {
	d := Decision{Rule: -1, Open: true}
	var m Match
	for _, t := range targets {
		one, named := r.calling(t, &m)
		switch {
		case !named:
			continue
		case one.Deny:
			return one
		}
		d.add(one)
	}
	return d
}

// calling is Calling for one target. It reports false where no rule names it.
func (r *Rules) calling(t Target, m *Match) (Decision, bool) {
	switch {
	case t.Kind == Unknown:
		return r.everything(t.What), t.What == foreignFunction || t.What == foreignSchema
	case t.Kind != Function:
		return Decision{}, false
	case t.AnySchema || t.AnyName:
		d, _ := r.wideNamed(t, m)
		return d, true
	case !r.findNamed(t, m):
		return Decision{}, false
	}
	return r.decideOne(t, m), true
}

// What Unknown targets are that may be functions of any name.
const (
	foreignFunction = "a function whose name is beyond ASCII"
	foreignSchema   = "a name in a schema beyond ASCII"
)

// FencesCalls says whether some rule of functions asks for an election, or denies.
func (r *Rules) FencesCalls() bool {
	return slices.ContainsFunc(r.rules, func(c rule) bool { return c.Kind == Function && c.Access != Open })
}

// Calls says whether the text calls a function that is not one of the server's own that write
// nothing, or may.
func (t *SQLTargets) Calls() bool {
	return slices.ContainsFunc(t.Writes, func(n SQLName) bool { return n.Kind == Function || n.Kind == Unknown })
}
