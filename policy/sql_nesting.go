package policy

import pg_query "github.com/pganalyze/pg_query_go/v6"

// maxNesting is how deep a text may nest. The parser recurses in C, at up to 400 bytes
// a level: a stack of 8 MB overflows at 22,000 levels, one of 2 MB (glibc's where
// the limit is "unlimited") at 5,000, and an overflow ends the process. The
// decoder of its answer gives up a little above this limit anyway.
const maxNesting = 3000

// shallow reports whether the parser's recursion over sql is bounded by maxNesting.
func shallow(sql string) bool {
	if countNesting(sql) <= maxNesting {
		return true
	}
	// The quick count adds up what stands side by side, and in literals. Ask the
	// lexer, which does not recurse.
	r, err := pg_query.Scan(sql)
	if err != nil {
		return false
	}
	return depth(r.Tokens) <= maxNesting
}

// level is one pair of parentheses: how deep the item at hand and the whole may be.
type level struct {
	item  int // tokens that may nest since the last comma
	query int // set operations and joins, which go on beyond a comma
	child int // the deepest pair of parentheses in the item
	most  int
}

func (l *level) end() int { return max(l.most, l.item+l.query+l.child) }

// depth is at least how deep the parse tree of the tokens is.
func depth(tokens []*pg_query.ScanToken) int {
	stack := make([]level, 1, 64)
	for _, t := range tokens {
		l := &stack[len(stack)-1]
		switch t.Token {
		case pg_query.Token_SCONST, pg_query.Token_ICONST, pg_query.Token_FCONST, pg_query.Token_IDENT,
			pg_query.Token_PARAM, pg_query.Token_SQL_COMMENT, pg_query.Token_C_COMMENT,
			pg_query.Token_ASCII_46: // .
		case pg_query.Token_UNION, pg_query.Token_INTERSECT, pg_query.Token_EXCEPT, pg_query.Token_JOIN:
			l.query++
		case pg_query.Token_ASCII_44: // ,
			l.most = l.end()
			l.item, l.child = 0, 0
		case pg_query.Token_ASCII_59: // ;
			*l = level{most: l.end()}
		case pg_query.Token_ASCII_40, pg_query.Token_ASCII_91: // ( [
			l.item++ // subscripts stand side by side and nest all the same
			if len(stack) > maxNesting {
				return len(stack)
			}
			stack = append(stack, level{})
		case pg_query.Token_ASCII_41, pg_query.Token_ASCII_93: // ) ]
			if len(stack) > 1 {
				d := l.end()
				stack = stack[:len(stack)-1]
				l = &stack[len(stack)-1]
				l.child = max(l.child, d)
			}
		default:
			l.item++
		}
	}
	d := 0
	for i := range stack {
		d += stack[i].end()
	}
	return d
}

// countNesting counts, at least, every token of sql that can add a level to the parse
// tree: runs of operator characters, opening brackets, and the keywords that join
// expressions, tables and queries.
func countNesting(sql string) int {
	n, word := 0, -1
	op := false
	for i := 0; i <= len(sql); i++ {
		var c byte
		if i < len(sql) {
			c = sql[i]
		}
		if isWordByte(c) {
			if word < 0 {
				word = i
			}
			op = false
			continue
		}
		if word >= 0 {
			if nests(sql[word:i]) {
				n++
			}
			word = -1
		}
		switch c {
		case '+', '-', '*', '/', '<', '>', '=', '~', '!', '@', '#', '%', '^', '&', '|', '`', '?', ':':
			if !op {
				n++
			}
			op = true
			continue
		case '[', '(':
			n++
		}
		op = false
	}
	return n
}

// nests reports whether a word is a keyword that can join without parentheses.
func nests(w string) bool {
	if len(w) < 2 || len(w) > 9 {
		return false
	}
	var b [9]byte
	for i := 0; i < len(w); i++ {
		b[i] = lower(w[i])
	}
	switch string(b[:len(w)]) {
	case "and", "or", "not", "is", "isnull", "notnull", "in", "like", "ilike", "similar", "between", "collate", "at",
		"operator", "union", "intersect", "except", "join", "over", "within", "filter", "escape", "from", "all", "any", "some",
		"select", "when", "then", "else", "case", "cast", "array", "row", "explain", "prepare", "as", "format", "with",
		"create", "schema":
		return true
	}
	return false
}
