package policy

import (
	"fmt"
	"strings"
	"unicode"
)

// CheckNamePattern says what is hardly meant in a pattern of tables or functions: what no
// name holds that anybody uses, and what is a slip where it is not escaped.
func CheckNamePattern(text string) error {
	dots := 0
	for i, c := range plain(text) {
		switch {
		case c == '.':
			dots++
		case c == ',':
			return fmt.Errorf(`%q holds a comma: several patterns are a list, or each is given by itself (a comma in a name is written \,)`, text)
		case unicode.IsSpace(c):
			return fmt.Errorf(`%q holds white space, as character %d (in a name it needs a backslash before it)`, text, i+1)
		}
	}
	if dots > 1 {
		return fmt.Errorf(`%q holds %d dots: a pattern is schema.name, without the database (a dot in a name is written \.)`, text, dots)
	}
	return nil
}

// Doubts are what may be meant, but seldom is, a line each.
func (r *Rules) Doubts() []string {
	var all []string
	for i := range r.rules {
		c := &r.rules[i]
		if c.Kind == Key {
			continue
		}
		for _, text := range c.Patterns {
			if strings.ContainsFunc(string(plain(text)), unicode.IsUpper) {
				all = append(all, fmt.Sprintf(`rule %d: pattern %q matches no name but one that was made in quotes: others are lower case at the server`, i+1, text))
			}
		}
	}
	return all
}

// plain are a pattern's characters, with a NUL for each of what is escaped and of a
// capture's name.
func plain(text string) []rune {
	rs := []rune(text)
	escaped, inside := false, false
	for i, c := range rs {
		switch {
		case escaped:
			rs[i], escaped = 0, false
		case c == '\\':
			rs[i], escaped = 0, true
		case inside:
			rs[i], inside = 0, c != '}'
		case c == '{':
			rs[i], inside = 0, true
		}
	}
	return rs
}
