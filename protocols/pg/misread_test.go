package pg

import "testing"

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
