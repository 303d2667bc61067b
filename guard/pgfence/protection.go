package pgfence

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A Protection says that tables are written only by sessions that are bound to an election.
// Of several, the first that matches a table counts.
type Protection struct {
	// Pattern is of the tables, "schema.table", in the words of policy.Rule: * is any
	// characters, ? any one, {name} a capture.
	Pattern string
	// Election is the election, or a template of what the pattern captures.
	Election string
	// Always protects also from sessions whose session_replication_role is replica, and from
	// what logical replication applies. It costs a call for each row.
	Always bool
}

// ParseProtection reads "schema.table=election". The error says what is wrong.
func ParseProtection(s string) (Protection, error) {
	i := strings.LastIndexByte(s, '=') // no election holds one
	if i < 0 {
		return Protection{}, fmt.Errorf("%q is not pattern=election, for instance billing.*=billing", s)
	}
	p := Protection{Pattern: s[:i], Election: s[i+1:]}
	return p, p.check()
}

func (p Protection) check() error {
	if err := policy.CheckNamePattern(p.Pattern); err != nil {
		return err
	}
	_, err := policy.NewRules([]policy.Rule{{Kind: policy.Table, Patterns: []string{p.Pattern}, Election: p.Election}}, "", election.CheckID)
	return err
}

// String is what ParseProtection reads.
func (p Protection) String() string { return p.Pattern + "=" + p.Election }

// separator stands between schema and table where they are matched. No name holds it that
// anybody uses.
const separator = `\u0001`

// expression is the server's regular expression of a checked pattern, and what to replace a
// match by to get the election. Both mean what policy.Rules makes of them.
func (p Protection) expression() (match, election string) {
	var b strings.Builder
	captures := []string{}
	inTable := false
	rs := []rune(p.Pattern)
	b.WriteByte('^')
	for i := 0; i < len(rs); i++ {
		switch c := rs[i]; {
		case c == '*':
			b.WriteString("[^" + separator + "]*?") // as little as it can, from the left
		case c == '?':
			b.WriteString("[^" + separator + "]")
		case c == '.' && !inTable:
			inTable = true
			b.WriteString(separator)
		case c == '{':
			n := i
			for rs[n] != '}' {
				n++
			}
			captures = append(captures, string(rs[i+1:n]))
			end := ""
			if n+1 < len(rs) && (rs[n+1] != '.' || inTable) {
				next := rs[n+1]
				if next == '\\' {
					next = rs[n+2]
				}
				end = literal(next)
			}
			b.WriteString("([^." + separator + end + "]+)")
			i = n
		case c == '\\':
			i++
			b.WriteString(literal(rs[i]))
		default:
			b.WriteString(literal(c))
		}
	}
	b.WriteByte('$')
	election = strings.ReplaceAll(p.Election, `\`, `\\`)
	for i, c := range captures {
		election = strings.ReplaceAll(election, "{"+c+"}", fmt.Sprintf(`\%d`, i+1))
	}
	return b.String(), election
}

// literal is a character in a regular expression, in brackets or not.
func literal(c rune) string {
	if unicode.IsLetter(c) || unicode.IsDigit(c) || c > unicode.MaxASCII {
		return string(c)
	}
	return `\` + string(c)
}
