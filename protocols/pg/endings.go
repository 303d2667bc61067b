package pg

import "github.com/fenceproxy/fenceproxy/policy"

// Endings follow which of a reader's prepared statements end transactions. In one Sync
// group, nothing may run behind one: the next transaction begins as
// default_transaction_read_only then says, which a function may have set, and the server
// reports that only at the end of the group.
//
// A name that is parsed or bound again stands for what it stood for before if the server
// refused that, or skipped it behind an error: until the group is over nothing is forgotten.
type endings struct {
	statements map[string]bool // those that end transactions
	portals    map[string]bool
	undo       []forgotten // what was taken off them in this Sync group
	any        bool        // too many to tell
	failed     bool        // something failed in this Sync group
	ran        bool        // something may have run in this Sync group
	ended      bool        // one that ends a transaction may have
}

// A forgotten is a name that was taken off one of the maps.
type forgotten struct {
	m    map[string]bool
	name string
}

// maxEndings bounds the names kept; maxNames is where the names of a Bind or Execute
// must end. Beyond either, every portal counts.
const (
	maxEndings = 200
	maxNames   = 256
)

func (e *endings) parsed(name []byte, ends bool) { e.note(&e.statements, sameName(name), ends) }

// The server tells names apart by their first 63 bytes.
func sameName(name []byte) string { return string(name[:min(len(name), 63)]) }

func (e *endings) note(m *map[string]bool, name string, ends bool) {
	switch {
	case !ends && (!(*m)[name] || e.failed || len(name) == 63): // the last: unless it was built otherwise
	case !ends && len(e.undo) >= maxEndings:
		e.any = true
	case !ends:
		e.undo = append(e.undo, forgotten{*m, name})
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

// fail records an error.
func (e *endings) fail() {
	e.failed = true
	for _, a := range e.undo {
		a.m[a.name] = true
	}
	e.undo = e.undo[:0]
}

// rest records ReadyForQuery.
func (e *endings) rest() { e.failed, e.ran, e.undo = false, false, e.undo[:0] }

// portals follows a reader's messages other than Parse. It reports false with a step when
// the message must not go through as it is, or yet.
func (c *core) portals(typ byte, in []byte, size int) (step, bool) {
	e := &c.ends
	switch typ {
	case 'S':
		e.ended = false
		return step{}, true
	case 'B', 'E', 'Q', 'F': // what executes, or plans
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
		e.ran = true
		e.ended = e.any || !ok || e.portals[sameName(portal)]
		return step{}, true
	}
	statement, _, ok2 := cut(rest)
	if !ok || !ok2 {
		e.any = true
		return step{}, true
	}
	e.note(&e.portals, sameName(portal), e.statements[sameName(statement)])
	return step{}, true
}
