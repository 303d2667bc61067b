package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Template is a text with names in braces, such as orders-{partition}: one election for
// each value of its names. The zero value is the empty text.
type Template struct {
	text  string
	parts []templatePart
}

// A templatePart is literal text, or a name.
type templatePart struct {
	text string
	name bool
}

// Errors of templates and partitions.
var (
	// ErrTemplate means that a text is no template.
	ErrTemplate = errors.New("not a template")
	// ErrNoCapture means that a name of a template has no value.
	ErrNoCapture = errors.New("nothing was captured")
	// ErrPartition means that a text cannot name a partition.
	ErrPartition = errors.New("invalid partition")
)

// ParseTemplate reads a template. A name is made of letters, digits and _, and begins with a
// letter; there are no other braces. The error is ErrTemplate.
func ParseTemplate(s string) (Template, error) {
	t := Template{text: s}
	for rest := s; rest != ""; {
		open := strings.IndexAny(rest, "{}")
		switch {
		case open < 0:
			open = len(rest)
		case rest[open] == '}':
			return Template{}, fmt.Errorf("%w: %q: } without {", ErrTemplate, s)
		}
		if open > 0 {
			t.parts = append(t.parts, templatePart{text: rest[:open]})
		}
		if rest = rest[open:]; rest == "" {
			break
		}
		name, after, ok := strings.Cut(rest[1:], "}")
		switch {
		case !ok:
			return Template{}, fmt.Errorf("%w: %q: { without }", ErrTemplate, s)
		case !isCaptureName(name):
			return Template{}, fmt.Errorf("%w: %q: {%s}: a name is made of letters, digits and _, and begins with a letter", ErrTemplate, s, name)
		}
		t.parts = append(t.parts, templatePart{text: name, name: true})
		rest = after
	}
	return t, nil
}

func isCaptureName(s string) bool {
	for i := range len(s) {
		c := lower(s[i])
		if (c < 'a' || c > 'z') && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != ""
}

// String is the text that the template was parsed from.
func (t Template) String() string { return t.text }

// Names are the names in the template, each once, in the order of their first use. Without
// any, Expand always returns the same.
func (t Template) Names() []string {
	var names []string
	for _, p := range t.parts {
		if p.name && !slices.Contains(names, p.text) {
			names = append(names, p.text)
		}
	}
	return names
}

// Expand puts values in the place of the names. It does not check what comes out: an election
// has to be checked as one. The error is ErrNoCapture.
func (t Template) Expand(value func(name string) (string, bool)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if !p.name {
			b.WriteString(p.text)
			continue
		}
		v, ok := value(p.text)
		if !ok || v == "" {
			return "", fmt.Errorf("%w for {%s} of %q", ErrNoCapture, p.text, t.text)
		}
		b.WriteString(v)
	}
	return b.String(), nil
}

// MaxPartitionLen is the longest name of a partition, in bytes.
const MaxPartitionLen = 128

// CheckPartition reports whether a text may name a partition: 1 to MaxPartitionLen
// characters of A-Z a-z 0-9 . _ - : that begin with a letter or a digit, with no two dots in a
// row: nothing that acts in a path, a log or a terminal. The error is ErrPartition.
func CheckPartition(s string) error {
	if s == "" || len(s) > MaxPartitionLen {
		return fmt.Errorf("%w: its length is %d, must be 1 to %d", ErrPartition, len(s), MaxPartitionLen)
	}
	for i := range len(s) {
		c := lower(s[i])
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || i > 0 && strings.IndexByte("._-:", c) >= 0 {
			continue
		}
		return fmt.Errorf("%w: character %d must be a letter, a digit or, after the first, . _ - or a colon", ErrPartition, i+1)
	}
	if strings.Contains(s, "..") {
		return fmt.Errorf("%w: two dots in a row", ErrPartition)
	}
	return nil
}
