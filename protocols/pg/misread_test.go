package pg

import (
	"strings"
	"testing"
)

// execute is a statement in the extended protocol, without Sync.
func execute(sql string) []byte {
	b := appendParse(nil, "", sql)
	return append(append(b, msg("B")...), msg("E")...)
}

const syncAndEnd = "S\x00\x00\x00\x04X\x00\x00\x00\x04"

// Two texts that hide statements in a literal: where strings take backslashes, and where a
// backslash is the second byte of a character.
const (
	hidden     = `SELECT '\' , ' ; COMMIT; BEGIN READ WRITE; INSERT INTO t VALUES (666); COMMIT --'`
	hiddenSJIS = "SELECT E'\x83\\' ; COMMIT; BEGIN READ WRITE; INSERT INTO t VALUES (666); COMMIT --'"
)

// A start-up value that changes how text is read comes back with RESET ALL, in the same
// flight as the text that is read so.
func TestStartupValuesThatMisreadComeBack(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct{ name, value, better, text string }{
		{"standard_conforming_strings", "off", "on", hidden},
		{"client_encoding", "SJIS", "UTF8", hiddenSJIS},
	} {
		for _, back := range []string{"RESET ALL", "DISCARD ALL"} {
			p := r.peer(false, c.name, c.value)
			p.send(appendQuery(nil, "SET "+c.name+" = '"+c.better+"'"))
			p.until('Z')
			p.send(append(appendQuery(execute(back), c.text), syncAndEnd...))
			said := show(p.rest(), false)
			if got := r.rows(); got != "" {
				t.Fatalf("%s, %s: rows %s\n%s", c.name, back, got, said)
			}
		}
	}
}

// Which dollar quotes are equal the server says after it has converted the text.
func TestDollarQuotesThatMisread(t *testing.T) {
	r := newRig(t, nil)
	for encoding, text := range map[string]string{
		"LATIN1": "SELECT $\xe9$ x $\xe8$ , $\xe9$ ; COMMIT; BEGIN READ WRITE; INSERT INTO t VALUES (666); COMMIT -- $\xe9$",
		"EUC_TW": "SELECT $\xc4\xe3$ x $\x8e\xa1\xc4\xe3$ ; COMMIT; BEGIN READ WRITE; INSERT INTO t VALUES (666); COMMIT -- $\xc4\xe3$",
	} {
		p := r.peer(false, "client_encoding", encoding)
		p.send(append(appendQuery(nil, text), "X\x00\x00\x00\x04"...))
		said := show(p.rest(), false)
		if got := r.rows(); got != "" {
			t.Fatalf("%s: rows %s\n%s", encoding, got, said)
		}
	}
}

// What a function changes in a flight the proxy learns at its end.
func TestFunctionsThatMisread(t *testing.T) {
	r := newRig(t, nil)
	for name, sql := range map[string]string{
		"bends":    "SET standard_conforming_strings = off",
		"converts": "SET client_encoding = 'SJIS'",
	} {
		mustExec(t, r.admin, "CREATE FUNCTION "+name+"() RETURNS int LANGUAGE plpgsql AS $$ BEGIN "+sql+"; RETURN 1; END $$")
	}
	for f, text := range map[string]string{"bends": hidden, "converts": hiddenSJIS} {
		p := r.peer(false)
		p.send(append(appendQuery(execute("SELECT "+f+"()"), text), syncAndEnd...))
		said := show(p.rest(), false)
		if got := r.rows(); got != "" {
			t.Fatalf("%s: rows %s\n%s", f, got, said)
		}
	}
	// At the end of the flight it is known, and before the first statement nothing has changed.
	c := r.connect("&default_query_exec_mode=exec")
	if got := queryString(t, c, `SELECT E'it\'s'`); got != "it's" {
		t.Error(got)
	}
	if got := queryString(t, c, `SELECT E'é\\'`); got != `é\` {
		t.Error(got)
	}
	mustExec(t, c, "SELECT bends()")
	wantError(t, try(t, c, `SELECT '\'`), "25006", "backslash")
}

// A name goes on to stand for COMMIT where parsing or binding it again failed or was skipped.
func TestEndingsAreNotForgotten(t *testing.T) {
	r := newRig(t, nil)
	prepareEscapes(t, r)
	bind := func(portal, statement string) []byte {
		return []byte("B\x00\x00\x00" + string(rune(12+len(portal)+len(statement))) + portal + "\x00" + statement + "\x00\x00\x00\x00\x00\x00\x00")
	}
	cat := func(bs ...[]byte) (all []byte) {
		for _, b := range bs {
			all = append(all, b...)
		}
		return all
	}
	sync := msg("S")
	before := r.rows()
	long := strings.Repeat("n", 63)
	for name, groups := range map[string][][]byte{
		"parsed again": {
			cat(appendParse(nil, "a", "COMMIT"), sync),
			cat(appendParse(nil, "a", "SELECT 1"), sync),
			cat(execute("SELECT flips()"), bind("", "a"), msg("E"), execute("SELECT writes()"), sync),
		},
		"skipped": {
			cat(appendParse(nil, "", "COMMIT"), bind("", "nothing"), appendParse(nil, "", "SELECT 1"), sync),
			cat(appendParse(nil, "f", "SELECT flips()"), bind("", "f"), msg("E"), bind("", ""), msg("E"), execute("SELECT writes()"), sync),
		},
		"the same name to the server": {
			cat(appendParse(nil, long+"x", "COMMIT"), sync),
			cat(execute("SELECT flips()"), bind("", long+"y"), msg("E"), execute("SELECT writes()"), sync),
		},
		"the same portal to the server": {
			cat(appendParse(nil, "a", "COMMIT"), sync),
			cat(bind(long+"x", "a"), execute("SELECT flips()"), []byte("E\x00\x00\x00\x49"+long+"y\x00\x00\x00\x00\x00"), execute("SELECT writes()"), sync),
		},
		"skipped later": {
			cat(appendParse(nil, "", "COMMIT"), bind("", "nothing"), msg("H")),
			cat(appendParse(nil, "", "SELECT 1"), sync),
			cat(appendParse(nil, "f", "SELECT flips()"), bind("", "f"), msg("E"), bind("", ""), msg("E"), execute("SELECT writes()"), sync),
		},
	} {
		p := r.peer(false, "user", "eager")
		var said string
		for i, g := range groups {
			if i == len(groups)-1 {
				p.send(append(g, "X\x00\x00\x00\x04"...))
				said += show(p.rest(), false)
				continue
			}
			p.send(g)
			end := byte('Z')
			if g[len(g)-5] == 'H' {
				end = 'E'
			}
			said += show(p.until(end), false)
		}
		if after := r.rows(); after != before {
			t.Fatalf("%s: %s to %s\n%s", name, before, after, said)
		}
		if !strings.Contains(said, "25006") {
			t.Errorf("%s: nothing was refused\n%s", name, said)
		}
	}
}

// A setting and the text that it changes in one flight do not get a prepared transaction past
// the proxy.
func TestHiddenPrepareTransaction(t *testing.T) {
	r := newRig(t, nil)
	p := r.peer(false, "fence.token", r.guard.lead().Reveal())
	p.send(append(appendQuery(execute("SET standard_conforming_strings = off"),
		`SELECT '\' , ' ; COMMIT; BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION $$hidden$$ --'`), syncAndEnd...))
	said := show(p.rest(), false)
	if n := queryString(t, r.admin, "SELECT count(*)::text FROM pg_prepared_xacts WHERE gid = 'hidden'"); n != "0" {
		mustExec(t, r.admin, "ROLLBACK PREPARED 'hidden'")
		t.Error(said)
	}
}
