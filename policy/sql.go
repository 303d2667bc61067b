package policy

import (
	"unicode/utf8"

	pg_query "github.com/pganalyze/pg_query_go/v6"
)

// SQLReason says why a text of SQL statements is refused to a session that may only
// read. The zero value means that every statement reads.
type SQLReason uint8

// The reasons. The order is part of a wire's refusal codes: append only.
const (
	// SQLReads: every statement only reads.
	SQLReads SQLReason = iota
	// SQLWrite: a statement writes, or has an effect that a read-only transaction
	// does not stop. What names the statement.
	SQLWrite
	// SQLFunction: a function that writes, acts on other sessions or runs text as
	// SQL is called, or a system function that is not known. What is its name.
	SQLFunction
	// SQLLocks: rows or tables are locked against others.
	SQLLocks
	// SQLLeavesReadOnly: a statement would make the session or the transaction
	// read-write. What names the setting or the statement.
	SQLLeavesReadOnly
	// SQLSetting: a setting would change how text is read. What is its name.
	SQLSetting
	// SQLUnparsed: the text could not be parsed, so nobody knows what it does.
	SQLUnparsed
	// SQLTooComplex: the text is too deeply nested or too long to be parsed.
	SQLTooComplex
)

// An SQLVerdict is what one text of SQL statements does, as far as a proxy must know.
type SQLVerdict struct {
	// Reason is SQLReads when a session without a live token may send the text.
	Reason SQLReason
	// What is the statement, function or setting that Reason is about: at most
	// 24 characters of a-z, 0-9 and _.
	What string

	// Fence says whether the text sets or touches the parameters of the fence.
	Fence FenceUse
	// Set are the assignments when Fence is FenceSets, in order. They hold tokens.
	Set []FenceSetting
	// Resets says that the text gives settings their start-up values again.
	Resets bool
	// SetsReadOnly says that the text itself sets default_transaction_read_only.
	SetsReadOnly bool
	// Prepares2PC says that the text holds PREPARE TRANSACTION.
	Prepares2PC bool
}

// FenceUse says how a text uses the parameters fence.election and fence.token.
type FenceUse uint8

// The uses.
const (
	// FenceUnused: the text does not touch them, or only shows them.
	FenceUnused FenceUse = iota
	// FenceSets: every statement of the text sets one of them.
	FenceSets
	// FenceMixed: a statement sets one of them, and another does something else.
	FenceMixed
	// FenceMisused: SET LOCAL, RESET, set_config, or another parameter fence.*.
	FenceMisused
)

// A FenceSetting is one assignment to fence.election or fence.token.
type FenceSetting struct {
	Token bool // fence.token, else fence.election
	Value string
}

// Limits of what is parsed.
const (
	// maxNesting is how many tokens that may nest a text may hold. The parser
	// recurses in C, on a stack of 8 MB, and overflows it at about 22,000 levels,
	// which ends the process; its decoder gives up at 5,000.
	maxNesting = 5000
	// bigText is the length from which on only a few texts are parsed at once,
	// because parsing takes about a hundred times the text in memory.
	bigText = 64 << 10
	// MaxSQLText is the longest text that is ever parsed.
	MaxSQLText = 1 << 20
)

// SQL classifies SQL statements. It is safe for concurrent use.
//
// Its promise: a text whose reason is SQLReads holds only statements of kinds that
// are known to read, that do not leave read-only, and that call no built-in function
// known to have an effect; what is unknown or does not parse is refused. It does not
// look into functions, views and operators that exist in the database: there the
// server's own read-only transaction is what refuses.
type SQL struct {
	cache sqlCache
	big   chan struct{}
}

// NewSQL returns a classifier that remembers verdicts in at most cacheBytes bytes of
// text; zero means 8 MiB.
func NewSQL(cacheBytes int) *SQL {
	if cacheBytes <= 0 {
		cacheBytes = 8 << 20
	}
	s := &SQL{big: make(chan struct{}, 2)}
	s.cache.limit = cacheBytes / 2
	return s
}

// Inspect says what a text of SQL statements does. It keeps no reference to text.
// It assumes standard_conforming_strings=on and an encoding in which ASCII bytes are
// ASCII characters.
func (s *SQL) Inspect(text []byte) SQLVerdict {
	if v, ok := s.cache.get(text); ok {
		return v
	}
	v := s.inspect(text)
	// A text that may hold a token is never kept.
	if v.Fence == FenceUnused && v.Reason < SQLUnparsed && !containsFold(text, "fence") {
		s.cache.put(string(text), v)
	}
	return v
}

func (s *SQL) inspect(text []byte) SQLVerdict {
	if len(text) > MaxSQLText {
		return SQLVerdict{Reason: SQLTooComplex, What: "length"}
	}
	if len(text) > bigText {
		s.big <- struct{}{}
		defer func() { <-s.big }()
	}
	sql := asUTF8(text)
	if !shallow(sql) {
		return SQLVerdict{Reason: SQLTooComplex, What: "nesting"}
	}
	tree, err := pg_query.Parse(sql)
	if err != nil {
		return SQLVerdict{Reason: SQLUnparsed}
	}
	return judge(tree)
}

// asUTF8 returns text in a form that the parser takes: in another encoding each byte
// above 127 becomes a letter that is never part of a keyword, which leaves the shape of
// the statement as it was.
func asUTF8(text []byte) string {
	if utf8.Valid(text) {
		return string(text)
	}
	b := make([]byte, 0, len(text)+len(text)/4)
	for _, c := range text {
		if c < utf8.RuneSelf {
			b = append(b, c)
		} else {
			b = append(b, "é"...)
		}
	}
	return string(b)
}

// shallow reports whether the parser's recursion over sql is bounded by maxNesting.
func shallow(sql string) bool {
	if countNesting(sql) <= maxNesting {
		return true
	}
	// The quick count takes what stands in literals for tokens. Ask the lexer, which
	// does not recurse.
	r, err := pg_query.Scan(sql)
	if err != nil {
		return false
	}
	n := 0
	for _, t := range r.Tokens {
		switch t.Token {
		case pg_query.Token_SCONST, pg_query.Token_ICONST, pg_query.Token_FCONST, pg_query.Token_IDENT,
			pg_query.Token_ASCII_44,                          // ,
			pg_query.Token_ASCII_46,                          // .
			pg_query.Token_ASCII_59,                          // ;
			pg_query.Token_ASCII_40, pg_query.Token_ASCII_41, // ( ): the grammar bounds these itself
			pg_query.Token_PARAM, pg_query.Token_SQL_COMMENT, pg_query.Token_C_COMMENT:
		default:
			if n++; n > maxNesting {
				return false
			}
		}
	}
	return true
}

// countNesting counts, at least, every token of sql that can add a level to the parse
// tree without a parenthesis around it: runs of operator characters, subscripts, and
// the keywords that join expressions, tables and queries.
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
		case '[':
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

func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// containsFold reports whether b contains the lower-case ASCII word w in any case.
func containsFold(b []byte, w string) bool {
	for i := 0; i+len(w) <= len(b); i++ {
		j := 0
		for j < len(w) && lower(b[i+j]) == w[j] {
			j++
		}
		if j == len(w) {
			return true
		}
	}
	return false
}
