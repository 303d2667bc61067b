package pg

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// codes are the SQLSTATEs that docs/postgres.md explains.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, b2, _ := strings.Cut(string(b), "## SQLSTATEs")
	table, _, _ := strings.Cut(b2, "\n## ")
	codes := make(map[string]bool)
	for _, line := range strings.Split(table, "\n") {
		if f := strings.Split(line, "|"); len(f) > 2 {
			for _, c := range regexp.MustCompile(`\b[0-9A-Z]{5}\b`).FindAllString(f[1], -1) {
				codes[c] = true
			}
		}
	}
	return codes
}

// Whatever the proxy says has a documented SQLSTATE, a DETAIL and a HINT, in ASCII.
func TestReportsAreComplete(t *testing.T) {
	known := documented(t)
	c := newDriver().c
	c.terms = []guard.Term{testTerm()}
	check := func(what string, r report) {
		t.Helper()
		if !known[r.code] || r.message == "" || r.detail == "" || r.hint == "" {
			t.Errorf("%s: %+v", what, r)
		}
		for _, b := range r.append(nil)[5:] {
			if b > '~' || b != 0 && b < ' ' {
				t.Errorf("%s: byte %x in %q", what, b, r.append(nil))
				break
			}
		}
	}
	for why := code(policy.SQLWrite); why <= lastCode; why++ {
		if why > code(policy.SQLTooComplex) && why <= codeOwn {
			continue
		}
		check("refused: "+c.marker(why, ""), c.explain(why, "insert_into"))
	}
	for reason := guard.NoCredential; reason <= guard.NotAllowed; reason++ {
		check("bare "+reasonName(reason), refusalReport("FATAL", &guard.Refusal{Reason: reason}))
		check("full "+reasonName(reason), refusalReport("FATAL", &guard.Refusal{Reason: reason, Election: "orders", Held: 1, Rules: 2, Leader: "w\xe9\u00e9\x00", Detail: "\u00e9\xff\x00"}))
	}
	for _, code := range []string{"08006", "08P01", "0A000", "22023", "28000", "42704"} {
		if e := (&startupError{code, "x"}); e.hint() == "" || !known[code] {
			t.Error(code)
		}
	}
}

func reasonName(r guard.Reason) string { return (&guard.Refusal{Reason: r}).Message() }

// Drivers read the proxy's errors as they read the server's.
func TestReportsDecode(t *testing.T) {
	for _, r := range []report{
		{severity: "FATAL", code: "FP001", message: "m", detail: "d", hint: "h"},
		{severity: "ERROR", code: "FP010", message: "a\x00b\u00e9\n", detail: "\xff\uFFFD", hint: ""},
	} {
		b := r.append(nil)
		var e pgproto3.ErrorResponse
		if err := e.Decode(b[5:]); err != nil {
			t.Fatal(err)
		}
		if e.Severity != r.severity || e.SeverityUnlocalized != r.severity || e.Code != r.code || e.Message != ascii(r.message) || e.Detail != ascii(r.detail) || e.Hint != r.hint {
			t.Errorf("%+v", e)
		}
	}
	if s := ascii("a\x00b\u00e9\xff\uFFFD\n"); s != `a\x00b\u00e9\xff\ufffd`+"\n" {
		t.Errorf("%q", s)
	}
}

// A client of any encoding gets ASCII from the proxy, whatever it sent.
func TestErrorsInOtherEncodings(t *testing.T) {
	r := newRig(t, nil)
	for _, encoding := range []string{"LATIN1", "SJIS", "EUC_JP", "WIN1251", "UTF8", "SQL_ASCII"} {
		p := r.peer(false, "client_encoding", encoding)
		for _, sql := range []string{"SET fence.election = '\xc3\xa9'", "INSERT INTO t VALUES (1) -- \xe9", "SELECT \xc3\xa9\xc3\xa9()", "CREATE TABLE \xe9 (a int)"} {
			said := p.ask(sql)
			for i := range len(said) {
				if said[i] > '~' && strings.Contains(said, "FP0") {
					t.Errorf("%s: %s: %q", encoding, sql, said)
				}
			}
			if !strings.Contains(said, "E ERROR") {
				t.Errorf("%s: %s: %q", encoding, sql, said)
			}
		}
	}
}
