package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds the configuration file and the files that it names.
const maxFile = 1 << 20

// maxMistakes is how many mistakes are listed; a file with more is not ours.
const maxMistakes = 50

// A reader collects the mistakes of one file.
type reader struct {
	file     string
	lookup   Lookup
	mistakes Mistakes
}

// A field is one value of the file: where it stands, what it is called, what it is.
type field struct {
	r    *reader
	key  string
	pos  Pos
	node ast.Node
}

func (r *reader) at(t *token.Token) Pos {
	p := Pos{File: r.file, Line: 1, Column: 1}
	if t != nil && t.Position != nil {
		p.Line, p.Column = t.Position.Line, t.Position.Column
	}
	return p
}

func (r *reader) mistake(pos Pos, key, format string, args ...any) {
	r.mistakes = append(r.mistakes, &Mistake{Pos: pos, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (f *field) mistake(format string, args ...any) { f.r.mistake(f.pos, f.key, format, args...) }

// parse returns the file's one document, or nil after a mistake.
func (r *reader) parse(text []byte) *field {
	whole := Pos{File: r.file, Line: 1, Column: 1}
	// Duplicates are ours to report, with the other mistakes.
	f, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			r.mistake(r.at(syntax.Token), "", "not valid YAML: %s", syntax.Message)
		} else {
			r.mistake(whole, "", "not valid YAML: %v", err)
		}
		return nil
	}
	var bodies []ast.Node
	for _, d := range f.Docs {
		if d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		r.mistake(whole, "", "the file is empty: see docs/configuration.md")
		return nil
	case 1:
		return &field{r: r, pos: whole, node: bodies[0]}
	}
	r.mistake(r.at(first(bodies[1])), "", "a second document: the configuration is one")
	return nil
}

// An object is a mapping whose keys are taken one by one; close reports the rest.
type object struct {
	field
	order []string
	left  map[string]*field
	known []string
}

// object reads f as a mapping, or reports that it is none.
func (f *field) object() *object {
	o := &object{field: *f, left: map[string]*field{}}
	var values []*ast.MappingValueNode
	switch n := f.node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		f.mistake("must be a mapping of keys to values, not %s", describe(f.node))
		return o
	}
	for _, v := range values {
		name, pos := v.Key.String(), f.r.at(v.Key.GetToken())
		if s, ok := v.Key.(*ast.StringNode); ok {
			name = s.Value
		}
		key := name
		if f.key != "" {
			key = f.key + "." + name
		}
		if v.Key.IsMergeKey() {
			f.r.mistake(pos, key, "merge keys are not supported")
			continue
		}
		if first, twice := o.left[name]; twice {
			f.r.mistake(pos, key, "given twice, first on line %d", first.pos.Line)
			continue
		}
		o.left[name] = &field{r: f.r, key: key, pos: pos, node: v.Value}
		o.order = append(o.order, name)
	}
	return o
}

// take returns the value of a key, or nil where it is not given.
func (o *object) take(name string) *field {
	o.known = append(o.known, name)
	f := o.left[name]
	delete(o.left, name)
	return f
}

// need is take, and reports a key that is not given.
func (o *object) need(name, why string) *field {
	f := o.take(name)
	if f == nil {
		key := name
		if o.key != "" {
			key = o.key + "." + name
		}
		o.r.mistake(o.pos, key, "missing: %s", why)
	}
	return f
}

// close reports the keys that nobody took.
func (o *object) close() {
	for _, name := range o.order {
		if f, ok := o.left[name]; ok {
			if s := suggest(name, o.known); s != "" {
				f.mistake("unknown key: did you mean %s?", s)
			} else {
				f.mistake("unknown key: the keys here are %s", strings.Join(o.known, ", "))
			}
		}
	}
}

// isList reports whether f is a sequence.
func (f *field) isList() bool { _, ok := f.node.(*ast.SequenceNode); return ok }

// list reads f as a sequence of at least one, or reports that it is none.
func (f *field) list() []*field {
	n, ok := f.node.(*ast.SequenceNode)
	if !ok {
		f.mistake("must be a list, not %s", describe(f.node))
		return nil
	}
	if len(n.Values) == 0 {
		f.mistake("is an empty list: leave it out, or give at least one")
	}
	items := make([]*field, len(n.Values))
	for i, v := range n.Values {
		items[i] = &field{r: f.r, key: fmt.Sprintf("%s[%d]", f.key, i), pos: f.r.at(first(v)), node: v}
	}
	return items
}

// text reads f as a scalar with its environment variables replaced; ok is false
// after a mistake.
func (f *field) text() (s string, ok bool) {
	switch n := f.node.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		s = n.GetToken().Value
	default:
		f.mistake("must be a text, not %s", describe(f.node))
		return "", false
	}
	s, err := expand(s, f.r.lookup)
	if err != nil {
		f.mistake("%v", err)
		return "", false
	}
	if s == "" {
		f.mistake("is empty")
		return "", false
	}
	return s, true
}

// oneOf reads f as one of a few words.
func (f *field) oneOf(words ...string) string {
	s, ok := f.text()
	if !ok || slices.Contains(words, s) {
		return s
	}
	hint := ""
	if near := suggest(s, words); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	f.mistake("%q is not one of %s%s", s, strings.Join(words, ", "), hint)
	return ""
}

// duration reads f as a length of time between least and most.
func (f *field) duration(least, most time.Duration) time.Duration {
	s, ok := f.text()
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		f.mistake("%q is not a length of time such as 500ms, 2s or 1m", s)
		return 0
	}
	if d < least || d > most {
		f.mistake("%s is out of range: %v to %v", s, least, most)
		return 0
	}
	return d
}

// number reads f as a whole number between least and most.
func (f *field) number(least, most int) int {
	s, ok := f.text()
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		f.mistake("%q is not a whole number", s)
		return 0
	}
	if n < least || n > most {
		f.mistake("%d is out of range: %d to %d", n, least, most)
		return 0
	}
	return n
}

// secret reads a URL from the key name, or from the file that name_file names, and
// returns the field that gave it. why says what it is for where neither is given.
func (o *object) secret(name, why string) (string, *field) {
	inline, fromFile := o.take(name), o.take(name+"_file")
	switch {
	case inline == nil && fromFile == nil:
		key := name
		if o.key != "" {
			key = o.key + "." + name
		}
		o.r.mistake(o.pos, key, "missing: %s (or %s_file)", why, name)
		return "", nil
	case inline != nil && fromFile != nil:
		fromFile.mistake("given together with %s: only one of the two", name)
		return "", nil
	case inline != nil:
		s, _ := inline.text()
		return s, inline
	}
	path, ok := fromFile.text()
	if !ok {
		return "", nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(o.r.file), path)
	}
	text, err := readFile(path)
	if err != nil {
		fromFile.mistake("%v", err)
		return "", nil
	}
	s := strings.TrimSpace(string(text))
	if s == "" {
		fromFile.mistake("%s is empty", path)
	}
	return s, fromFile
}

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory", path)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// first is the token that a value begins with: a mapping's own is a colon.
func first(n ast.Node) *token.Token {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

func describe(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias (not supported)"
	case *ast.TagNode:
		return "a tagged value (not supported)"
	}
	return "a single value"
}
