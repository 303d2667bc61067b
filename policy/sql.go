package policy

import (
	"strings"
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
	// AsksReadOnly says that a SET of it, for the session, sets it to on.
	AsksReadOnly bool
	// EndsTransaction says that the text holds COMMIT or ROLLBACK without AND CHAIN.
	EndsTransaction bool
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
	cache   sqlCache[SQLVerdict]
	targets sqlCache[*SQLTargets]
	big     chan struct{}
}

// NewSQL returns a classifier that remembers verdicts in at most cacheBytes bytes of
// text, and targets, once they are asked for, in as many; zero means 8 MiB.
func NewSQL(cacheBytes int) *SQL {
	if cacheBytes <= 0 {
		cacheBytes = 8 << 20
	}
	s := &SQL{big: make(chan struct{}, 2)}
	s.cache.limit = cacheBytes / 2
	s.targets.limit, s.targets.size = cacheBytes/2, (*SQLTargets).size
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
		s.cache.put(text, v)
	}
	return v
}

func (s *SQL) inspect(text []byte) SQLVerdict {
	tree, why := s.parse(text)
	if tree == nil {
		return why
	}
	return judge(tree)
}

// parse returns the tree of a text, or nil and why there is none.
func (s *SQL) parse(text []byte) (*pg_query.ParseResult, SQLVerdict) {
	if len(text) > MaxSQLText {
		return nil, SQLVerdict{Reason: SQLTooComplex, What: "length"}
	}
	if len(text) > bigText {
		s.big <- struct{}{}
		defer func() { <-s.big }()
	}
	sql := asUTF8(text)
	if !shallow(sql) {
		return nil, SQLVerdict{Reason: SQLTooComplex, What: "nesting"}
	}
	if mayQuoteForeign(sql) && quotesForeign(sql) {
		return nil, SQLVerdict{Reason: SQLUnparsed}
	}
	tree, err := pg_query.Parse(sql)
	if err != nil {
		return nil, SQLVerdict{Reason: SQLUnparsed}
	}
	return tree, SQLVerdict{}
}

// quotesForeign reports whether a dollar quote has a tag beyond ASCII, as in $é$. It ends
// at a tag that is equal, and which are equal the server says after it has converted the
// text: two characters may become one, and asUTF8 makes one of many. Where no quote
// begins with such a tag, the server ends each where the lexer does.
func quotesForeign(sql string) bool {
	r, err := pg_query.Scan(sql)
	if err != nil {
		return true
	}
	for _, t := range r.Tokens {
		if t.Token == pg_query.Token_SCONST && mayQuoteForeign(sql[t.Start:t.End]) && sql[t.Start] == '$' && sql[t.Start+1] != '$' &&
			!isASCII(sql[t.Start:int(t.Start)+1+strings.IndexByte(sql[t.Start+1:], '$')]) {
			return true
		}
	}
	return false
}

// mayQuoteForeign is quotesForeign, quick and on the safe side.
func mayQuoteForeign(sql string) bool {
	in, foreign := false, false
	for i := 0; i < len(sql); i++ {
		switch c := sql[i]; {
		case c == '$' && foreign:
			return true
		case c == '$':
			in = true
		case !in:
		case c >= utf8.RuneSelf:
			foreign = true
		case !isWordByte(c):
			in, foreign = false, false
		}
	}
	return false
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
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
