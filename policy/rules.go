package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Rule says under which election a session may write what its patterns match, or that
// everybody may, or nobody.
type Rule struct {
	// Kind is what the patterns are of.
	Kind TargetKind
	// Patterns are "schema.name" for tables and functions, and whole keys for keys: see
	// pattern for what they are made of.
	Patterns []string
	// Access is Fenced where Election is set.
	Access Access
	// Election is a template of the names that each of the patterns captures.
	Election string
}

// Access says who may write what a rule matches.
type Access uint8

// The kinds of access. The zero value is Fenced.
const (
	// Fenced: who leads the rule's election.
	Fenced Access = iota
	// Open: everybody.
	Open
	// Deny: nobody.
	Deny
)

// TargetKind says what is written.
type TargetKind uint8

// The kinds of targets. The zero value is Unknown: what is not told is anything.
const (
	// Unknown: it cannot be told what is written.
	Unknown TargetKind = iota
	// Table: a table, view, sequence or other relation.
	Table
	// Function: a function or procedure that is called, and may do what it likes.
	Function
	// Key: a key of Redis.
	Key
)

// String is the plural, as the rules are written.
func (k TargetKind) String() string {
	switch k {
	case Table:
		return "tables"
	case Function:
		return "functions"
	case Key:
		return "keys"
	}
	return "anything"
}

// A Target is something that a statement or command writes.
type Target struct {
	Kind TargetKind
	// Schema and Name are the name as the server has it; keys have no schema.
	Schema, Name string
	// AnySchema and AnyName say that it is not known, or that all of them are written: all
	// tables of a schema, a table in whatever schema, all keys.
	AnySchema, AnyName bool
	// What is, of an Unknown target, the statement, command or function of which it is not
	// known what it writes.
	What string
}

// String is the target's name.
func (t Target) String() string {
	if t.Kind == Unknown {
		return t.What
	}
	schema, name := t.Schema, t.Name
	if t.AnySchema {
		schema = "*"
	}
	if t.AnyName {
		name = "*"
	}
	if t.Kind == Key {
		return fmt.Sprintf("key %q", name)
	}
	return strings.TrimSuffix(t.Kind.String(), "s") + " " + schema + "." + name
}

// A Decision is what the rules say of all that one statement or command writes. The zero
// value is not one.
type Decision struct {
	// Elections are those of which the session has to hold the live terms, each once.
	Elections []string
	// Open says that nothing is written but what is open to everybody.
	Open bool
	// Deny says that nobody may send it, and Why says why, and what to do.
	Deny bool
	Why  string
	// Rule is the rule that denied, else the first that named an election, or that opened;
	// -1 where that is none of them: the default, or that no rule matches.
	Rule int
}

// ErrRule means that a rule cannot be used.
var ErrRule = errors.New("invalid rule")

// Rules say which election rules what: the first rule that matches counts. They are not
// changed once they are made, and safe for concurrent use. A nil *Rules has none.
//
// INVARIANT: what no rule matches needs the default election, and is denied to all where
// there is none; so is what makes no valid election.
type Rules struct {
	rules    []rule
	fallback string
	check    func(election string) error
}

type rule struct {
	Rule
	forms     []form
	elections Template // of Fenced
	constant  bool     // it has no names
}

// A form is one pattern of a rule: of the schema and the name, or of the key alone.
type form struct {
	text     string
	parts    []pattern
	captures []string
	from     []int // for each name that the rule's template uses, in the order of its parts: which capture
}

// NewRules compiles rules. The default election rules what no rule matches; empty means
// that nobody may write that. check says whether a text is an election's name. The error is
// an ErrRule of the rule with that number, from 0.
func NewRules(rules []Rule, fallback string, check func(election string) error) (*Rules, error) {
	r := &Rules{fallback: fallback, check: check}
	for i, one := range rules {
		c, err := compileRule(one, check)
		if err != nil {
			return nil, &RuleError{Rule: i, Err: err}
		}
		r.rules = append(r.rules, c)
	}
	return r, nil
}

// A RuleError is an ErrRule of one of the rules.
type RuleError struct {
	Rule int // from 0
	Err  error
}

// Error says which rule, from 1, and what is wrong with it.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %d: %v", e.Rule+1, e.Err) }

// Unwrap returns what is wrong, and ErrRule.
func (e *RuleError) Unwrap() []error { return []error{ErrRule, e.Err} }

func compileRule(r Rule, check func(string) error) (rule, error) {
	c := rule{Rule: r}
	switch {
	case len(r.Patterns) == 0 || r.Kind == Unknown:
		return c, errors.New("it matches nothing: it has no patterns")
	case r.Access == Fenced && r.Election == "":
		return c, errors.New("it names no election")
	case r.Access != Fenced && r.Election != "":
		return c, errors.New("it names an election, and says that none is needed")
	}
	var err error
	if c.elections, err = ParseTemplate(r.Election); err != nil {
		return c, err
	}
	c.constant = len(c.elections.Names()) == 0
	if c.constant && r.Access == Fenced {
		if err := check(r.Election); err != nil {
			return c, err
		}
	}
	for _, text := range r.Patterns {
		f, err := parseForm(r.Kind, text)
		if err != nil {
			return c, err
		}
		for _, p := range c.elections.parts {
			if !p.name {
				continue
			}
			i := slices.Index(f.captures, p.text)
			if i < 0 {
				return c, fmt.Errorf("election %q needs {%s}, which the pattern %q does not capture", r.Election, p.text, text)
			}
			f.from = append(f.from, i)
		}
		c.forms = append(c.forms, f)
	}
	return c, nil
}

// parseForm reads a pattern of a kind of targets.
func parseForm(kind TargetKind, text string) (form, error) {
	f := form{text: text}
	parts := []string{text}
	if kind != Key {
		schema, name, ok := cutDot(text)
		if !ok {
			return f, fmt.Errorf("%w: %q is not schema.name (*.%s is it in every schema)", ErrPattern, text, text)
		}
		parts = []string{schema, name}
	}
	for _, s := range parts {
		p, err := parsePattern(s, kind == Key)
		if err != nil {
			return f, err
		}
		for _, c := range p.captures {
			if slices.Contains(f.captures, c) {
				return f, fmt.Errorf("%w: %q: it captures {%s} twice", ErrPattern, text, c)
			}
			f.captures = append(f.captures, c)
		}
		f.parts = append(f.parts, p)
	}
	if len(f.captures) > maxCaptures {
		return f, fmt.Errorf("%w: %q has more than %d captures", ErrPattern, text, maxCaptures)
	}
	return f, nil
}

// cutDot cuts at the first dot that no backslash is before.
func cutDot(s string) (before, after string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '.':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// Len is how many rules there are.
func (r *Rules) Len() int {
	if r == nil {
		return 0
	}
	return len(r.rules)
}

// Default is the election that rules what no rule matches, or empty.
func (r *Rules) Default() string { return r.fallback }

// MayName reports whether a rule names the election: itself, or by a template that begins as
// the election does.
func (r *Rules) MayName(election string) bool {
	if r == nil {
		return false
	}
	return election == r.fallback || slices.ContainsFunc(r.rules, func(c rule) bool {
		parts := c.elections.parts
		return c.Access == Fenced && (c.constant && c.Election == election ||
			!c.constant && !parts[0].name && strings.HasPrefix(election, parts[0].text))
	})
}

// Describe is a rule in one line: its number from 1, its patterns and what it says; of -1,
// the default.
func (r *Rules) Describe(i int) string {
	switch {
	case i < 0 && r.fallback == "":
		return "no rule"
	case i < 0:
		return fmt.Sprintf("no rule: the listener's election %q", r.fallback)
	}
	c := &r.rules[i]
	what := fmt.Sprintf("election %q", c.Election)
	switch c.Access {
	case Open:
		what = "open to everybody"
	case Deny:
		what = "denied to everybody"
	}
	return fmt.Sprintf("rule %d (%s %s): %s", i+1, c.Kind, strings.Join(c.Patterns, ", "), what)
}

// name is how a rule is named in a refusal.
func (r *Rules) name(i int) string {
	return fmt.Sprintf("rule %d (%s %s)", i+1, r.rules[i].Kind, strings.Join(r.rules[i].Patterns, ", "))
}
