package pg

import "github.com/fenceproxy/fenceproxy/policy"

// Endings follow which of a reader's prepared statements end transactions. In one Sync
// group, nothing may run behind one: the next transaction begins as
// default_transaction_read_only then says, which a function may have set, and the server
// reports that only at the end of the group.
type endings struct {
	statements map[string]bool // those that end transactions
	portals    map[string]bool
	any        bool // too many to tell
	ended      bool // one may have run in this Sync group
}

// maxEndings bounds the names kept; maxNames is where the names of a Bind or Execute
// must end. Beyond either, every portal counts.
const (
	maxEndings = 200
	maxNames   = 256
)

func (e *endings) parsed(name string, ends bool) { e.note(&e.statements, name, ends) }

func (e *endings) note(m *map[string]bool, name string, ends bool) {
	switch {
	case !ends:
		delete(*m, name)
	case len(*m) >= maxEndings:
		e.any = true
	default:
		if *m == nil {
			*m = make(map[string]bool)
		}
		(*m)[name] = true
	}
}

// portals follows a reader's messages other than Parse. It reports false with a step when
// the message must not go through as it is, or yet.
func (c *core) portals(typ byte, in []byte, size int) (step, bool) {
	e := &c.ends
	switch typ {
	case 'S':
		e.ended = false
		return step{}, true
	case 'E', 'Q', 'F': // what executes
		if e.ended {
			s, _ := c.refuse(typ, nil, size, code(policy.SQLLeavesReadOnly), "statement_after_commit")
			return s, false
		}
	}
	if typ != 'B' && typ != 'E' {
		return step{}, true
	}
	need := min(size, 5+maxNames)
	if len(in) < need {
		return step{next: read, need: need}, false
	}
	portal, rest, ok := cut(in[5:need])
	if typ == 'E' {
		e.ended = e.any || !ok || e.portals[string(portal)]
		return step{}, true
	}
	statement, _, ok2 := cut(rest)
	if !ok || !ok2 {
		e.any = true
		return step{}, true
	}
	e.note(&e.portals, string(portal), e.statements[string(statement)])
	return step{}, true
}
