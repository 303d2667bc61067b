package pg

import (
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A reader's syntax error is the server's own, with its place, and nothing around it runs.
func TestReadersSyntaxErrors(t *testing.T) {
	testenv.EachPostgres(t, func(t *testing.T, _ testenv.Version, pg *servers.Process) {
		r := newRigAt(t, pg, nil)
		var direct, reader *peer
		ask := func(p *peer, typ byte, text string) []byte {
			if typ == 'Q' {
				p.send(appendQuery(nil, text))
			} else {
				p.send(slices.Concat(appendParse(nil, "", text), syncs))
			}
			return p.until('Z')
		}
		direct, reader = r.peer(true), r.peer(false)
		for _, typ := range []byte("QP") {
			for _, text := range []string{
				"SELEC 1", "SELECT 1 FRM t", "INSERT INTO t VALUES (1)) -- x", "SELECT 1; INSERT INTO t VALUES (2); SELEC 3",
				"INSERT INTO t VALUES (3); COMMIT; BEGIN; )", "SELECT 'é' é é", "select 1 group order", "CREATE TABEL x (a int)", "SELECT $1 $2",
				"INSERT INTO t VALUES (4) /* /* */ RETURNING *) */ )", "DELETE FROM t AS WHERE", "SELECT E'\\uD800'",
			} {
				got, want := ask(reader, typ, text), ask(direct, typ, text)
				if string(got) != string(want) {
					t.Errorf("%c %s:\n%s%swant\n%s%q", typ, text, show(got, false), got, show(want, false), want)
				}
			}
			// What does not end takes the marker along; and what the server would read is refused.
			for _, text := range []string{"INSERT INTO t VALUES (5) /* ", "SELECT 'x", "SELECT $a$ x", `SELECT "x`, "SELECT $é$ x $é$; INSERT INTO t VALUES (6)",
				"SELECT 'x' FROM fence.token x y z", "SET fence.token = 'x' NONSENSE", "SELECT U&'\\0061' U&\"token"} {
				if got := show(ask(reader, typ, text), false); !strings.HasPrefix(got, "E ERROR 25006 \"write refused") {
					t.Errorf("%c %s: %s", typ, text, got)
				}
			}
			// The end of a text is the marker's beginning.
			for _, text := range []string{"SELECT 1 FROM", "DELETE FROM t AS", "INSERT INTO t", "INSERT INTO t VALUES (7) RETURNING", "UPDATE t SET a = 8 WHERE", "DROP TABLE", "SELECT (1"} {
				if got := show(ask(reader, typ, text), false); !strings.HasPrefix(got, `E ERROR 42601 "syntax error at or near \";\""`) {
					t.Errorf("%c %s: %s", typ, text, got)
				}
			}
		}
		if got := r.rows(); got != "" {
			t.Errorf("rows: %s", got)
		}
	})
}
