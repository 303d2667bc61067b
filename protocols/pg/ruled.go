package pg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A ruling is what the core of a listener with rules keeps. A bound session writes only what
// the elections whose terms it holds rule.
//
// Invariants, beside those of the core:
//
//   - Every text of a bound session was judged by the rules before it goes upstream, and every
//     name without a schema by a search_path that the server itself said, and that nothing may
//     have changed since; or as if it were in any schema.
//   - A prepared statement with such names is judged again whenever it is bound or executed,
//     for the server looks the names up again where the search_path has changed.
type ruling struct {
	rules *policy.Rules

	path     policy.SearchPath
	touching bool // a portal may change the path when it is run, or take a change back
	asked    *pathAnswer

	prepared  map[string][]preparedSet
	sets      int  // in prepared
	lost      bool // there were too many to keep those that only read
	seq       uint64
	closings  []closing
	failed    bool // something failed since the server was at rest
	decisions map[*policy.SQLTargets]policy.Decision
	calls     map[*policy.SQLTargets]policy.Decision // of readers

	// Of portals whose statements are looked at again when they are run: see Late.
	portals map[string][]*policy.SQLTargets
	open    openTransaction
	// The server may have ownOpen still, which an error kept from being closed.
	leftOpen bool

	reasons [maxReasons]report // of refusals, by their number modulo maxReasons
	reason  uint64
}

const (
	// maxReasons bounds the refusals that are explained in one pipeline.
	maxReasons = 16
	// maxPrepared bounds the prepared statements that are kept, and maxDecisions the decisions.
	maxPrepared  = 2000
	maxPortals   = 200
	maxDecisions = 256
)

// A preparedSet is what a prepared statement may write, kept where that depends on the
// search_path, or where the statement may change it.
type preparedSet struct {
	t      *policy.SQLTargets
	seq    uint64
	writes bool // it was prepared without a term, and may be run in an open transaction alone
}

// A closing is a prepared statement that is given up, or all: what it was before seq is
// forgotten, once the server came to rest without an error.
type closing struct {
	name string
	all  bool
	seq  uint64
}

// leads says whether the session holds the live term of an election.
func (c *core) leads(election string) bool {
	for i := range c.terms {
		if c.terms[i].Election == election {
			return true
		}
	}
	return false
}

// missing is the first election of the decision whose term the session does not hold.
func (c *core) missing(d *policy.Decision) string {
	for _, e := range d.Elections {
		if !c.leads(e) {
			return e
		}
	}
	return ""
}

// maxTerms bounds the terms of one session.
const maxTerms = 16

// inspectRuled decides on a bound session's Query or Parse by the rules, before it is looked
// at as ever.
func (c *core) inspectRuled(typ byte, body []byte, size int) (step, bool) {
	name, text, ok := statement(typ, body)
	if !ok {
		return c.malformed(typ, body, size)
	}
	return c.mayWrite(typ, name, text, size)
}

// mayWrite decides on a text by the rules: whether a bound session may send it. It reports
// false with a step where not, or not yet.
func (c *core) mayWrite(typ byte, name, text []byte, size int) (step, bool) {
	t, ok := c.targetsOf(text)
	if !ok {
		return step{next: judge, text: text}, false
	}
	if c.readsUnsurely(text) {
		t = policy.UnreadableSQL()
	}
	if s, known := c.knowPath(t); !known {
		return s, false
	}
	if r, ok := c.permits(t); !ok {
		if own, isSyntax := c.ownError(text, t); isSyntax {
			c.sent(typ)
			if typ == 'P' {
				return c.replace(size, appendParse(nil, string(name), string(own))), false
			}
			return c.replace(size, appendQuery(nil, string(own))), false
		}
		return c.refuseRuled(typ, name, size, r)
	}
	if r, ok := c.note(typ, name, t); !ok {
		return c.refuseRuled(typ, name, size, r)
	}
	return step{}, true
}

// refuseUnbound refuses a reader's text as ever, in words that name the election that it would need.
func (c *core) refuseUnbound(typ byte, name, text []byte, size int, v policy.SQLVerdict) (step, bool) {
	switch v.Reason {
	case policy.SQLWrite, policy.SQLLocks, policy.SQLFunction:
	default:
		return c.refuse(typ, name, size, code(v.Reason), v.What)
	}
	t, ok := c.targetsOf(text)
	if !ok {
		return step{next: judge, text: text}, false
	}
	if s, known := c.knowPath(t); !known {
		return s, false
	}
	d := c.decide(t)
	e := c.missing(&d)
	switch {
	case d.Open && len(t.Writes) > 0:
		return c.openText(typ, name, text, size, t)
	case d.Deny:
		return c.refuseRuled(typ, name, size, denied(&d))
	case e != "" && c.refusal == nil && !c.followsLead():
		return c.refuseRuled(typ, name, size, c.lacks(e, &d))
	}
	return c.refuse(typ, name, size, code(v.Reason), v.What)
}

// ownError is the text that makes the server say itself what is wrong with a text that
// could not be parsed.
func (c *core) ownError(text []byte, t *policy.SQLTargets) ([]byte, bool) {
	if !t.Unparsed() {
		return nil, false
	}
	return c.unparsed(text)
}

// targetsOf is verdict, for what a text writes.
func (c *core) targetsOf(text []byte) (*policy.SQLTargets, bool) {
	if len(text) <= quickText {
		return c.sql.Targets(text), true
	}
	if c.judged.text != string(text) || c.judged.targets == nil {
		return nil, false
	}
	return c.judged.targets, true
}

// readsUnsurely says whether the server may read a text in another way than the parser: a
// setting that was sent just before may change what a backslash does.
func (c *core) readsUnsurely(text []byte) bool {
	return c.unsafe && !isASCII(text) || c.scsOff && bytes.IndexByte(text, '\\') >= 0 ||
		c.track.state() != idle && readsTwoWays(text)
}

// permits says whether the session may do what t is about, and if not, why.
func (c *core) permits(t *policy.SQLTargets) (report, bool) {
	d := c.decide(t)
	if r, ok := c.allows(&d); !ok {
		return r, false
	}
	for _, e := range t.Executes {
		for _, s := range c.ruled.executed(t, e) {
			d := c.ruled.rules.Decide(s.Writing(e.Executing(c.ruled.path), c.ruled.rules))
			if r, ok := c.allows(&d); !ok {
				return r, false
			}
		}
	}
	return report{}, true
}

// executed is what EXECUTE in a text may run: what was kept of the statement's name, and what
// the text itself prepares under it.
func (r *ruling) executed(t *policy.SQLTargets, e policy.SQLExecute) []*policy.SQLTargets {
	var all []*policy.SQLTargets
	name := sameName([]byte(e.Name))
	for _, s := range r.prepared[name] {
		all = append(all, s.t)
	}
	for _, p := range t.Prepares {
		if sameName([]byte(p.Name)) == name {
			all = append(all, p.Targets)
		}
	}
	return all
}

func (c *core) allows(d *policy.Decision) (report, bool) {
	if d.Deny {
		return denied(d), false
	}
	if e := c.missing(d); e != "" {
		return c.lacks(e, d), false
	}
	return report{}, true
}

// decide is the decision of the rules in the present search_path.
func (c *core) decide(t *policy.SQLTargets) policy.Decision {
	r := c.ruled
	if d, ok := r.decisions[t]; ok {
		return d
	}
	d := r.rules.Decide(t.Writing(r.path, r.rules))
	if len(r.decisions) >= maxDecisions {
		clear(r.decisions)
	}
	if r.decisions == nil {
		r.decisions = make(map[*policy.SQLTargets]policy.Decision)
	}
	r.decisions[t] = d
	return d
}

// note keeps what must be known of a text that goes upstream: what it prepares, and whether
// it may change the search_path. It reports false where there is too much to keep.
func (c *core) note(typ byte, name []byte, t *policy.SQLTargets) (report, bool) {
	r := c.ruled
	for _, e := range t.Executes {
		if !isASCII([]byte(e.Name)) || r.leftOpen && e.Name == ownOpen {
			return oddName(), false
		}
	}
	if typ == 'P' {
		// Before it, the server forgets an unnamed one.
		if len(name) == 0 {
			r.close(closing{})
		}
		if !c.keeps(name, t, false) {
			return notKept(name), false
		}
		return report{}, true
	}
	r.close(closing{}) // a Query forgets it too
	// First, for what is prepared after it in the same text stays.
	for _, n := range t.Deallocates {
		if !cutUnsurely(n) {
			r.close(closing{name: sameName([]byte(n))})
		}
	}
	if t.DeallocatesAll {
		r.close(closing{all: true})
	}
	for _, p := range t.Prepares {
		if cutUnsurely(p.Name) {
			return oddName(), false
		}
		if !c.keeps([]byte(p.Name), p.Targets, false) {
			return tooManyPrepared(), false
		}
	}
	c.ran(t)
	return report{}, true
}

// ran notes that what t is about runs.
func (c *core) ran(t *policy.SQLTargets) {
	r := c.ruled
	touches := t.TouchesPath
	for _, e := range t.Executes {
		for _, s := range r.executed(t, e) {
			touches = touches || s.TouchesPath
			c.rewinds(s)
		}
	}
	if touches {
		r.setPath(policy.SearchPath{})
	}
	c.rewinds(t)
}

// rewinds forgets a path that holds in the transaction at hand alone.
func (c *core) rewinds(t *policy.SQLTargets) {
	if t.Rewinds && c.ruled.path.Fleeting {
		c.ruled.setPath(policy.SearchPath{})
	}
}

// endedTransaction forgets a path that was asked for inside a transaction which is over.
func (r *ruling) endedTransaction() {
	if r.path.Fleeting {
		r.setPath(policy.SearchPath{})
	}
}

func (r *ruling) setPath(p policy.SearchPath) {
	if !p.Known && !r.path.Known {
		return
	}
	r.path = p
	clear(r.decisions)
	clear(r.calls)
}

// keeps remembers what a prepared statement may write, where that must be known later: where
// the search_path decides, or may be changed (by any function, also one that a reader may
// call, and a bound session may not); and where an open transaction asks for what it only
// reads.
func (c *core) keeps(name []byte, t *policy.SQLTargets, writes bool) bool {
	r := c.ruled
	must := t.PathMatters() || t.TouchesPath || t.Rewinds || len(t.Executes) > 0
	if !must && (c.isBound() || !r.rules.Opens() || r.lost) {
		return true
	}
	if !isASCII(name) {
		return false
	}
	if r.keep(sameName(name), t, writes) {
		return true
	}
	r.lost = r.lost || !must
	return !must
}

// keep remembers a prepared statement beside what it may have been before.
func (r *ruling) keep(name string, t *policy.SQLTargets, writes bool) bool {
	for i, s := range r.prepared[name] {
		if s.t == t && s.writes == writes {
			r.seq++
			r.prepared[name][i].seq = r.seq
			return true
		}
	}
	if r.sets >= maxPrepared {
		return false
	}
	if r.prepared == nil {
		r.prepared = make(map[string][]preparedSet)
	}
	r.seq++
	r.sets++
	r.prepared[name] = append(r.prepared[name], preparedSet{t, r.seq, writes})
	return true
}

// close notes that a prepared statement is given up. Until the server said that all went
// well, it may still be there.
func (r *ruling) close(cl closing) {
	if !cl.all && len(r.prepared[cl.name]) == 0 || len(r.closings) >= maxPrepared {
		return
	}
	cl.seq = r.seq + 1
	r.closings = append(r.closings, cl)
}

// rest notes that the server is at rest, with nothing under way.
func (r *ruling) rest(status byte) {
	failed := r.failed
	if !failed {
		for _, cl := range r.closings {
			if cl.all {
				for name := range r.prepared {
					r.forget(name, cl.seq)
				}
				r.lost = false
				continue
			}
			r.forget(cl.name, cl.seq)
		}
	}
	r.closings, r.failed = r.closings[:0], false
	switch {
	case status == 'I':
		r.touching = false // its portals are gone
		r.open = openTransaction{}
		clear(r.portals)
	case !failed:
		for name, all := range r.portals {
			r.portals[name] = all[len(all)-1:]
		}
	}
}

func (r *ruling) forget(name string, before uint64) {
	sets, n := r.prepared[name], 0
	for _, s := range sets {
		if s.seq >= before {
			sets[n] = s
			n++
		}
	}
	r.sets -= len(sets) - n
	if n == 0 {
		delete(r.prepared, name)
		return
	}
	r.prepared[name] = sets[:n]
}

// ruledMessage looks at a message other than Query and Parse of a listener with rules. It
// reports true where the message is to be looked at as ever.
func (c *core) ruledMessage(typ byte, in []byte, size int) (step, bool) {
	r := c.ruled
	switch typ {
	case 'E':
		return c.ruledExecute(in, size)
	case 'C', 'B':
	case 'F':
		return c.ruledCall(in, size)
	default:
		return step{}, true
	}
	if len(r.prepared) == 0 && !r.open.is && !r.leftOpen {
		return step{}, true
	}
	need := min(size, 5+2*maxNames)
	if len(in) < need {
		return step{next: read, need: need}, false
	}
	if typ == 'C' {
		if need > 5 && in[5] == 'S' {
			if name, _, ok := cut(in[6:need]); ok {
				r.close(closing{name: sameName(name)})
			}
		}
		return step{}, true
	}
	portal, rest, ok := cut(in[5:need])
	name, _, ok2 := cut(rest)
	switch {
	case ok && ok2:
	case need == size:
		return step{}, true // it does not end: the server refuses it in its own words
	default:
		// Longer than any name that the server tells apart.
		return c.refuseRuled(typ, nil, size, longNames())
	}
	return c.ruledBind(portal, name, size)
}

// ruledBind looks at a Bind of a statement.
func (c *core) ruledBind(portal, name []byte, size int) (step, bool) {
	r := c.ruled
	if r.leftOpen && string(name) == ownOpen {
		return c.refuseRuled('B', nil, size, oddName())
	}
	sets := r.prepared[sameName(name)]
	for _, s := range sets {
		if c.isBound() {
			if s, known := c.knowPath(s.t); !known {
				return s, false
			}
			if why, ok := c.permits(s.t); !ok {
				return c.refuseRuled('B', nil, size, why)
			}
		}
	}
	if !c.isBound() {
		for _, s := range sets {
			if st, done := c.mayCall('B', nil, size, s.t); !done {
				return st, false
			}
		}
		if s, done := c.openBind(portal, sets, size); !done {
			return s, false
		}
	}
	if !r.bindTo(portal, sets) {
		return c.refuseRuled('B', nil, size, notKept(portal))
	}
	for _, s := range sets {
		c.ran(s.t)
		r.touching = r.touching || s.t.TouchesPath || s.t.Rewinds || len(s.t.Executes) > 0
	}
	return step{}, true
}

// bindTo notes what a portal may run, if that is looked at again when it is run.
func (r *ruling) bindTo(portal []byte, sets []preparedSet) bool {
	for _, s := range sets {
		if !s.t.Late || !s.t.PathMatters() && len(s.t.Executes) == 0 {
			continue
		}
		name := sameName(portal)
		if !isASCII(portal) {
			return false
		}
		if len(r.portals) >= maxPortals && r.portals[name] == nil || len(r.portals[name]) >= maxPortals {
			return false
		}
		if r.portals == nil {
			r.portals = make(map[string][]*policy.SQLTargets)
		}
		r.portals[name] = append(r.portals[name], s.t)
	}
	return true
}

// ruledExecute looks at an Execute of a portal whose names the server looks for only now.
func (c *core) ruledExecute(in []byte, size int) (step, bool) {
	r := c.ruled
	if len(r.portals) > 0 || r.open.is {
		need := min(size, 5+maxNames)
		if len(in) < need {
			return step{next: read, need: need}, false
		}
		portal, _, ok := cut(in[5:need])
		switch {
		case !ok && need < size:
			return c.refuseRuled('E', nil, size, longNames())
		case r.open.is && !r.open.portals[sameName(portal)]:
			return c.refuseRuled('E', nil, size, notOpen("a portal that was opened before", ""))
		}
		for _, t := range r.portals[sameName(portal)] {
			if s, done := c.runsLate(t, size); !done {
				return s, false
			}
		}
	}
	if r.touching {
		r.setPath(policy.SearchPath{})
	}
	return step{}, true
}

// runsLate judges again what a portal is about to run.
func (c *core) runsLate(t *policy.SQLTargets, size int) (step, bool) {
	if !c.isBound() && !c.ruled.open.is {
		return c.mayCall('E', nil, size, t) // for the rest, the server holds it back
	}
	if s, known := c.knowPath(t); !known {
		return s, false
	}
	if c.isBound() {
		if why, ok := c.permits(t); !ok {
			return c.refuseRuled('E', nil, size, why)
		}
		return step{}, true
	}
	if ok, why := c.ruled.openToAll(t); !ok {
		return c.refuseRuled('E', nil, size, notOpen(why, ""))
	}
	return step{}, true
}

// ruledCall looks at a FunctionCall of a bound session: it may call anything.
func (c *core) ruledCall(in []byte, size int) (step, bool) {
	if !c.isBound() {
		return step{}, true
	}
	const need = 9 // up to the function's number
	if len(in) < min(size, need) {
		return step{next: read, need: min(size, need)}, false
	}
	if size >= need && readingCall(binary.BigEndian.Uint32(in[5:])) {
		return step{}, true
	}
	if why, ok := c.permitsAnything("a FunctionCall message"); !ok {
		return c.refuseRuled('F', nil, size, why)
	}
	c.ruled.setPath(policy.SearchPath{})
	return step{}, true
}

// permitsAnything says whether the session may do what cannot be told.
func (c *core) permitsAnything(what string) (report, bool) {
	d := c.ruled.rules.Decide([]policy.Target{{Kind: policy.Unknown, What: what}})
	return c.allows(&d)
}

// refuseRuled is refuse with a report of its own.
func (c *core) refuseRuled(typ byte, name []byte, size int, why report) (step, bool) {
	r := c.ruled
	r.reason++
	r.reasons[r.reason%maxReasons] = why
	return c.refuse(typ, name, size, codeRuled, strconv.FormatUint(r.reason, 10))
}

// why is the report that refuseRuled was given.
func (r *ruling) why(what string) report {
	n, err := strconv.ParseUint(what, 10, 64)
	if r == nil || err != nil || n > r.reason || r.reason-n >= maxReasons {
		return notAllowed("", "the rules of the listener do not allow it", "See the first refusals of the pipeline.")
	}
	return r.reasons[n%maxReasons]
}

// denied says that nobody may do it.
func denied(d *policy.Decision) report {
	r := refusalReport("ERROR", &guard.Refusal{Reason: guard.NotAllowed, Detail: d.Why})
	r.hint = "fenceproxy check --explain says which rule decides on a statement."
	return r
}

// lacks says that the session does not hold the term of an election that the decision needs.
func (c *core) lacks(election string, d *policy.Decision) report {
	detail := c.ruled.rules.Describe(d.Rule)
	if len(d.Elections) > 1 {
		detail = "what it writes is ruled by the elections " + strings.Join(d.Elections, ", ")
	}
	for i := range c.terms {
		detail += fmt.Sprintf("; this session holds number %d of election %q", c.terms[i].Number, c.terms[i].Election)
	}
	r := refusalReport("ERROR", &guard.Refusal{Reason: guard.NoCredential, Election: election, Detail: detail})
	switch {
	case c.isBound():
		r.hint = fmt.Sprintf("Present the live token of election %q too: SET fence.election = '%s'; SET fence.token = '...'.", election, quoted(election))
	case election != c.election:
		r.hint = fmt.Sprintf("Present the live token of election %q: SET fence.election = '%s'; SET fence.token = '...'.", election, quoted(election))
	}
	return r
}

func tooManyPrepared() report {
	return report{severity: "ERROR", code: "54000", message: "too many prepared statements whose meaning depends on search_path",
		detail: fmt.Sprintf("The rules of the listener are looked at again when such a statement is executed; at most %d are kept.", maxPrepared),
		hint:   "Name the schema in the statements, or DEALLOCATE what is not used."}
}

// cutUnsurely reports whether the server may know what PREPARE and DEALLOCATE name by another
// name than the parser: it takes letters beyond ASCII as the session's and the database's encodings
// have it, and cuts a long name where a character begins.
//
// INVARIANT: what is kept by its name has one that is the same bytes in every encoding.
func cutUnsurely(name string) bool {
	return !isASCII([]byte(name)) || len(name) > 63-4 && len(name) < 63
}

// notKept says why a prepared statement or portal of that name cannot be kept.
func notKept(name []byte) report {
	if !isASCII(name) {
		return oddName()
	}
	return tooManyPrepared()
}

func oddName() report {
	return report{severity: "ERROR", code: "42622", message: "the name of a prepared statement or portal is none that the proxy can follow",
		detail: "The rules of the listener are looked at by the statement's name. It may be other bytes to the server where it is beyond ASCII, or where PREPARE names 60 to 62 bytes; or it is one of the proxy's own.",
		hint:   "Take a shorter name of ASCII letters."}
}

func longNames() report {
	return report{severity: "ERROR", code: "42622", message: "the name of a prepared statement or portal is too long",
		detail: "The rules of the listener are looked at by the statement's name.", hint: "The server takes 63 bytes."}
}
