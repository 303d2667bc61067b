package pg

import "github.com/fenceproxy/fenceproxy/policy"

// mayCall decides on the functions that a reader's text calls. The server runs them read-only,
// so that those go through which no rule names. It reports false with a step where the
// session may not, or where the search_path has to be known first.
//
// Invariant: a function that a rule names is called by nobody who may not write what the rule
// rules. Read-only, a function still locks, signals and waits.
func (c *core) mayCall(typ byte, name []byte, size int, t *policy.SQLTargets) (step, bool) {
	r := c.ruled
	if !t.Calls() && len(t.Executes) == 0 || !r.rules.FencesCalls() {
		return step{}, true
	}
	if s, known := c.knowPath(t); !known {
		return s, false
	}
	if why, ok := c.permitsCalls(t); !ok {
		return c.refuseRuled(typ, name, size, why)
	}
	return step{}, true
}

// permitsCalls is permits for the functions that a reader calls.
func (c *core) permitsCalls(t *policy.SQLTargets) (report, bool) {
	r := c.ruled
	d, ok := r.calls[t]
	if !ok {
		d = r.rules.Calling(t.Writing(r.path, r.rules))
		if len(r.calls) >= maxDecisions {
			clear(r.calls)
		}
		if r.calls == nil {
			r.calls = make(map[*policy.SQLTargets]policy.Decision)
		}
		r.calls[t] = d
	}
	if why, ok := c.allowsCalls(&d); !ok {
		return why, false
	}
	for _, e := range t.Executes {
		for _, s := range r.executed(t, e) {
			d := r.rules.Calling(s.Writing(e.Executing(r.path), r.rules))
			if why, ok := c.allowsCalls(&d); !ok {
				return why, false
			}
		}
	}
	return report{}, true
}

func (c *core) allowsCalls(d *policy.Decision) (report, bool) {
	e := c.missing(d)
	switch {
	case d.Deny:
		return denied(d), false
	case e == "":
		return report{}, true
	case c.refusal != nil || c.followsLead():
		why := *c.standing()
		why.Detail = join(why.Detail, "refused: a call, by "+c.ruled.rules.Describe(d.Rule))
		return c.refused("ERROR", &why), false
	}
	return c.lacks(e, d), false
}
