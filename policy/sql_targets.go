package policy

import "slices"

// SQLTargets are what a text of SQL statements writes, as far as its words tell.
//
// Its promise: every table that a statement names as written is among the Writes, with its
// schema or with what decides on the schema; so is every call of a function that is not
// known to be one of the server's own that write nothing; and what cannot be told is there
// as Unknown. What happens beyond the words is not seen: triggers, rewrite rules, cascades
// of foreign keys, the parts of a partitioned or inherited table, what a view writes to, and
// the functions behind operators, types, defaults and views.
//
// It is not changed once it is made.
type SQLTargets struct {
	// Writes are written, called or not known.
	Writes []SQLName
	// Reads are the relations that are read.
	Reads []SQLName
	// Executes are prepared statements that are executed.
	Executes []SQLExecute
	// Prepares are statements that are prepared. What they write is among the Writes too.
	Prepares []SQLPrepared
	// Deallocates are prepared statements that are given up, DeallocatesAll says that all are.
	Deallocates    []string
	DeallocatesAll bool
	// TouchesPath says that the session's search_path, or the user for whom $user stands in
	// it, may be another afterwards.
	TouchesPath bool
	// Rewinds says that the text ends a transaction, or goes back to a savepoint: settings
	// of that transaction are taken back.
	Rewinds bool
	// Late says that the server looks for names when it runs a statement, not yet when that is
	// bound to a portal.
	Late bool
	// Statements is how many there are.
	Statements int
	// Beyond is empty where each statement is one that does no more than its words say. Else
	// it names the statement or what it uses, in the form of SQLVerdict.What.
	Beyond string
}

// An SQLName is a name in a statement.
type SQLName struct {
	Target
	// where says where the schema of a name without one is looked for.
	where pathKind
	path  []string
}

// An SQLExecute is a prepared statement that is executed.
type SQLExecute struct {
	Name  string
	where pathKind
	path  []string
}

// An SQLPrepared is a statement that PREPARE prepares.
type SQLPrepared struct {
	Name    string
	Targets *SQLTargets
}

type pathKind uint8

const (
	pathNone     pathKind = iota // the name has a schema
	pathSession                  // the session's search_path, as it was before the text
	pathAfterEnd                 // the same, behind the end of a transaction in the text
	pathConstant                 // the text set it
	pathUnknown
)

// A SearchPath is where the server looks for a name without a schema.
type SearchPath struct {
	// Known is false where it may be anything.
	Known bool
	// Schemas are those of the setting search_path, as ParseSearchPath returns them.
	Schemas []string
	// User is the schema that $user stands for.
	User string
	// Fleeting says that the end of the transaction may change it.
	Fleeting bool
}

// maxSQLNames bounds the names of one text.
const maxSQLNames = 256

// PathMatters says whether what the text writes depends on the session's search_path.
func (t *SQLTargets) PathMatters() bool {
	onPath := func(n SQLName) bool { return n.where == pathSession || n.where == pathAfterEnd }
	return slices.ContainsFunc(t.Writes, onPath)
}

// Writing is what the text writes in a session with that search path: for a name without a
// schema, the tables of that name in all schemas in which the server may find it.
//
// INVARIANT: where the server would find a table that is not among those, the rules are not
// asked about it. A name is looked for in every schema of the path, for it is not known which
// tables there are; in pg_catalog, which is there without being named, where the name is of
// its kind; and anywhere where the path is not known. Only what is in pg_temp is left out:
// that is the session's own. The schema of the user's name, which is in every path by
// default and hardly ever there, counts where a rule names its tables.
func (t *SQLTargets) Writing(p SearchPath, r *Rules) []Target { return resolve(t.Writes, p, r) }

// OpenToAll says whether a session may send the text without the term of any election, in a
// transaction in which the server does not hold it back: all that it writes, calls and reads
// is open by a rule, or of the server's own, and it does no more than its words say. Where
// not, why is what is in the way.
//
// INVARIANT: reading counts, for a view calls functions.
func (t *SQLTargets) OpenToAll(p SearchPath, r *Rules) (ok bool, why string) {
	if t.Beyond != "" {
		return false, t.Beyond
	}
	for _, n := range append(t.Writing(p, r), t.Reading(p, r)...) {
		if n.Kind == Table && (n.Schema == "pg_catalog" || n.Schema == "information_schema") && !n.AnySchema && !t.writes(n) {
			continue
		}
		if d := r.Decide([]Target{n}); !d.Open {
			return false, n.String()
		}
	}
	return true, ""
}

// writes reports whether a name is among the Writes, whatever its schema.
func (t *SQLTargets) writes(n Target) bool {
	return slices.ContainsFunc(t.Writes, func(w SQLName) bool { return w.Kind == n.Kind && (w.Name == n.Name || w.AnyName) })
}

// Reading is Writing for what the text reads.
func (t *SQLTargets) Reading(p SearchPath, r *Rules) []Target { return resolve(t.Reads, p, r) }

// Executing is the search path by which a statement that was prepared earlier, and that the
// text executes, is looked at.
func (e SQLExecute) Executing(p SearchPath) SearchPath { return p.at(e.where, e.path) }

// at is the search path at a place in a text.
func (p SearchPath) at(where pathKind, set []string) SearchPath {
	switch {
	case where == pathConstant:
		return SearchPath{Known: true, Schemas: set, User: p.User, Fleeting: p.Fleeting}
	case where == pathUnknown || where == pathAfterEnd && p.Fleeting:
		return SearchPath{}
	}
	return p
}

func resolve(names []SQLName, p SearchPath, r *Rules) []Target {
	var all []Target
	for _, n := range names {
		if n.where == pathNone {
			all = append(all, n.Target)
			continue
		}
		at := p.at(n.where, n.path)
		if !at.Known {
			t := n.Target
			t.AnySchema = true
			all = append(all, t)
			continue
		}
		all = n.in(at, r, all)
	}
	return all
}

func (n SQLName) in(p SearchPath, r *Rules, all []Target) []Target {
	before := len(all)
	t := n.Target
	if t.Kind == Table && len(t.Name) > 3 && t.Name[:3] == "pg_" {
		t.Schema = "pg_catalog"
		all = append(all, t)
	}
	for _, s := range p.Schemas {
		user := s == "$user"
		if user {
			s = p.User
		}
		switch {
		case s == "" || isTemp(s) || s == "pg_catalog":
			continue
		case !isASCII(s):
			all = append(all, Target{Kind: Unknown, What: foreignSchema})
			continue
		}
		t.Schema = s
		if user && !r.names(t) {
			continue
		}
		all = append(all, t)
	}
	if len(all) == before {
		// Found nowhere, or in pg_temp alone; unless somebody makes another.
		t.Schema, t.AnySchema = "", true
		all = append(all, t)
	}
	return all
}

// Targets says what a text of SQL statements writes. It keeps no reference to text. It
// assumes what Inspect assumes.
func (s *SQL) Targets(text []byte) *SQLTargets {
	if t, ok := s.targets.get(text); ok {
		return t
	}
	tree, why := s.parse(text)
	if tree == nil {
		if why.Reason == SQLTooComplex {
			return untold("a text that is too long or too deeply nested to be parsed", "too_complex")
		}
		return untold("a text that cannot be parsed", unparsed)
	}
	t := targetsOf(tree)
	if !containsFold(text, "fence") { // it may hold a token
		s.targets.put(text, t)
	}
	return t
}

// untold are the targets of a text that may do anything.
func untold(what, beyond string) *SQLTargets {
	return &SQLTargets{Writes: []SQLName{{Target: Target{Kind: Unknown, What: what}}}, TouchesPath: true, Rewinds: true, Beyond: beyond}
}

const unparsed = "unparsed"

// Unparsed says whether the text could not be parsed.
func (t *SQLTargets) Unparsed() bool { return t.Beyond == unparsed }

// UnreadableSQL are the targets of a text that the server may read in another way than the
// parser.
func UnreadableSQL() *SQLTargets { return untold("a text that cannot be read reliably", "unreadable") }

// names reports whether a rule matches the name itself.
func (r *Rules) names(t Target) bool {
	var m Match
	return r.findNamed(t, &m)
}

// size is about what the targets take in memory.
func (t *SQLTargets) size() int {
	n := 256 + 160*(len(t.Writes)+len(t.Reads)) + 80*(len(t.Executes)+len(t.Prepares)+len(t.Deallocates))
	for _, p := range t.Prepares {
		n += p.Targets.size()
	}
	return n
}

// Opens says whether some rule opens anything to everybody.
func (r *Rules) Opens() bool {
	return slices.ContainsFunc(r.rules, func(c rule) bool { return c.Access == Open })
}
