package policy_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/policy"
)

// pieces are put together at random: what begins and ends literals, names and comments,
// what changes how they are read, and between them what must not run.
var pieces = []string{"'", "''", `"`, "$$", "$a$", "$a", "$", "$1", "--", "\n", "\r", "\v", "\f", "/*", "*/", `\`, `\'`, `\\`, "E'", "e'", "U&'", `U&"`, "u&'",
	"UESCAPE '!'", "UESCAPE '\\'", "B'1", "X'f", "N'", " ", " ", " ", ";", "SELECT 1", "SELECT ", "SELECT 'a'", " AS ", "a", "1", "0x", "1_", "1e", ".", "+", "-", "*", "/", "::text", "||", ",",
	"(", ")", "%s", "%s", "%s", "%s", "\\047", "\\u0027", "\\0027", "!0027", "İ", "é"}

var (
	endings  = []string{"'", `\'`, `\\'`, `\\\'`, "''", `"`, `\"`, "$a$", "$$", "*/", "\n", "\r", "!'", `\0027`, "\v'", "'\n'", "'--\n'", `'' '`}
	swallows = []string{"--", "/*", "'", `"`, "$$", "$a$", "E'", "--'", "", "-- */", "'a", "''" + "'"}
)

// around are the ways to hold something that is not run.
var around = [][2]string{{"SELECT '", "'"}, {"SELECT E'", "'"}, {"SELECT U&'", "'"}, {"SELECT $$", "$$"}, {"SELECT $a$", "$a$"}, {`SELECT 1 AS "`, `"`}, {`SELECT 1 AS U&"`, `"`},
	{"/*", "*/ SELECT 1"}, {"--", "\nSELECT 1"}, {"SELECT 1 --", "\r"}, {"SELECT 'a'\n'", "'"}, {"SELECT 1 AS a", ""}, {"SELECT N'", "'"}}

// bites are the bytes beyond ASCII of each encoding, and what may look like one character
// with the ASCII byte behind it.
var bites = map[string][]string{
	"UTF8": {"é", "\u2028", "\u00a0", "日"}, "LATIN1": {"\xe9", "\xa0", "\x85", "\xc3\xa9", "\xe3"},
	"EUC_JP": {"\xa4\xa2", "\x8e\xb1", "\x8f\xb0\xa1", "\xa4"}, "EUC_TW": {"\xc4\xe3", "\x8e\xa1\xc4\xe3"}, "EUC_KR": {"\xb0\xa1"}, "WIN1251": {"\xcf", "\xa0", "\x98"},
	"MULE_INTERNAL": {"\x81\xe9", "\x92\xb0\xa1"}, "SQL_ASCII": {"\xe9", "é"},
}

// serves are the encodings of databases, and of clients, that are tried together.
var serves = map[string][]string{
	"UTF8": {"UTF8", "LATIN1", "EUC_JP", "EUC_TW", "EUC_KR", "WIN1251", "SQL_ASCII"}, "LATIN1": {"LATIN1", "UTF8", "MULE_INTERNAL"},
	"EUC_JP": {"EUC_JP", "UTF8", "MULE_INTERNAL"}, "EUC_TW": {"EUC_TW", "UTF8"}, "MULE_INTERNAL": {"MULE_INTERNAL", "EUC_JP", "LATIN1"}, "SQL_ASCII": {"SQL_ASCII", "UTF8", "EUC_JP"},
}

const acts = "NOTIFY a"

// misreadsNothing: a text that the policy takes for a read is one to the server. What the
// policy sees as a literal, a name or a comment, the server does not run.
func (l *lab) misreadsNothing() {
	many := 200
	if os.Getenv("FENCEPROXY_LONG") != "" {
		many = 30_000
	}
	for database, clients := range serves {
		l.exec(l.admin, fmt.Sprintf("CREATE DATABASE extra_%s ENCODING '%s' TEMPLATE template0", database, database))
		for _, encoding := range clients {
			texts := readsWith(rand.New(rand.NewPCG(uint64(l.major), uint64(len(encoding)))), encoding, many)
			if ran := l.harmless("extra_"+strings.ToLower(database), encoding, texts); ran < many/6 {
				l.t.Errorf("%s in a database of %s: only %d of %d texts succeeded", encoding, database, ran, many)
			}
		}
	}
}

// readsWith makes texts that hold the statement that acts, and of these returns those
// that the policy takes for reads.
func readsWith(r *rand.Rand, encoding string, many int) []string {
	s := policy.NewSQL(1)
	var texts []string
	all := append(append(pieces[:len(pieces):len(pieces)], bites[encoding]...), bites[encoding]...)
	holds := around[:len(around):len(around)]
	for _, bite := range bites[encoding] {
		tag := "$" + bite + "$" // which tags are equal the server may see otherwise
		all, holds = append(all, tag, tag), append(holds, [2]string{"SELECT " + tag, tag})
	}
	for len(texts) < many {
		var b strings.Builder
		hold := holds[r.IntN(len(holds))]
		b.WriteString(hold[0])
		soup := func(n int) {
			for range r.IntN(n) {
				b.WriteString(all[r.IntN(len(all))])
			}
		}
		soup(8)
		if r.IntN(3) > 0 {
			// What may seem to go on and may end, the statement, what swallows the rest.
			b.WriteString(endings[r.IntN(len(endings))] + "%s" + swallows[r.IntN(len(swallows))])
			soup(3)
		}
		b.WriteString(hold[1])
		text := strings.ReplaceAll(b.String(), "%s", ";"+acts+";")
		if strings.Contains(text, acts) && s.Inspect([]byte(text)).Reason == policy.SQLReads {
			texts = append(texts, text)
		}
	}
	return texts
}

// harmless runs texts read-only, reports those that leave a trace, and says how many
// succeeded.
func (l *lab) harmless(database, encoding string, texts []string) (ran int) {
	l.t.Helper()
	r := l.connectConfig("postgres", func(c *pgx.ConnConfig) {
		c.Database = database
		c.RuntimeParams["default_transaction_read_only"] = "on"
		c.RuntimeParams["client_encoding"] = encoding
	})
	defer func() { _ = r.Close(l.t.Context()) }()
	run := func(texts []string) (ok int) {
		for _, text := range texts {
			if sqlstate(r, text) == "ok" {
				ok++
			}
			if r.PgConn().TxStatus() != 'I' {
				l.exec(r, "ROLLBACK")
			}
		}
		return ok
	}
	before := l.xid()
	ran = run(texts)
	if l.xid() == before {
		return ran
	}
	for _, text := range texts {
		before := l.xid()
		run([]string{text})
		if l.xid() != before {
			l.t.Errorf("%s, %s: %q\n\tis taken for a read, and the server runs what it holds", database, encoding, text)
		}
	}
	return ran
}

func (l *lab) xid() string {
	return l.scalar(l.admin, "SELECT pg_snapshot_xmax(pg_current_snapshot())")
}
