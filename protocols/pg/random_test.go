package pg

import (
	"bytes"
	"flag"
	"io"
	"net"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

// bindTo makes a Bind of an unnamed or named portal, without parameters.
func bindTo(portal, statement string) []byte {
	b := appendMessage(nil, 'B', portal, statement)
	b = append(b, 0, 0, 0, 0, 0, 0)
	b[4] += 6
	return b
}

func executeOf(portal string, rows byte) []byte {
	b := appendMessage(nil, 'E', portal)
	b = append(b, 0, 0, 0, rows)
	b[4] += 4
	return b
}

func ofKind(typ, kind byte, name string) []byte {
	return append([]byte{typ, 0, 0, 0, byte(6 + len(name)), kind}, name+"\x00"...)
}

// A menu is what a random client sends: statements, and raw messages.
type menu struct {
	queries, parses []string
	raw             [][]byte
}

func (m menu) draw(t *rapid.T) (chunks [][]byte, fin bool) {
	name := rapid.SampledFrom([]string{"", "", "a", "b"})
	var b []byte
	for range rapid.IntRange(1, 20).Draw(t, "messages") {
		switch rapid.IntRange(0, 12).Draw(t, "message") {
		case 0, 1:
			b = appendQuery(b, rapid.SampledFrom(m.queries).Draw(t, "query"))
		case 2, 3:
			b = appendParse(b, name.Draw(t, "statement"), rapid.SampledFrom(m.parses).Draw(t, "parse"))
		case 4, 5:
			b = append(b, bindTo(name.Draw(t, "portal"), name.Draw(t, "statement"))...)
		case 6, 7:
			b = append(b, executeOf(name.Draw(t, "portal"), rapid.SampledFrom([]byte{0, 0, 1}).Draw(t, "rows"))...)
		case 8:
			b = append(b, ofKind(rapid.SampledFrom([]byte{'D', 'C'}).Draw(t, "what"), rapid.SampledFrom([]byte{'S', 'P'}).Draw(t, "kind"), name.Draw(t, "name"))...)
		case 9, 10:
			b = append(b, syncs...)
		case 11:
			b = append(b, flushes...)
		case 12:
			b = append(b, rapid.SampledFrom(m.raw).Draw(t, "raw")...)
		}
		if rapid.IntRange(0, 3).Draw(t, "split") == 0 && len(b) > 0 {
			n := rapid.IntRange(0, len(b)).Draw(t, "at")
			chunks, b = append(chunks, b[:n]), b[n:]
		}
	}
	return append(chunks, b), rapid.Bool().Draw(t, "fin")
}

// exchange sends chunks and returns all that comes back to the end, without reports of settings.
func exchange(p *peer, chunks [][]byte, fin bool) (said []byte, whole bool) {
	got := make(chan error, 1)
	var b []byte
	go func() {
		var err error
		b, err = io.ReadAll(p.c)
		got <- err
	}()
	for _, c := range chunks {
		if _, err := p.c.Write(c); err != nil {
			break
		}
	}
	if fin {
		_ = p.c.(*net.TCPConn).CloseWrite()
	} else {
		_, _ = p.c.Write(msg("X"))
	}
	err := <-got
	_ = p.c.Close()
	for len(b) >= 5 {
		typ, n := header(b)
		if typ == 'A' && n >= 8 && len(b) >= 9 {
			copy(b[5:], "\x00\x00\x00\x00") // the sender's process id
		}
		if typ != 'S' {
			said = append(said, b[:min(1+n, len(b))]...)
		}
		b = b[min(1+n, len(b)):]
	}
	return said, err == nil
}

var leaderMenu = menu{
	queries: []string{"SELECT 1", "SELECT nothing", "SELECT 1/0", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1); SELECT 2; SELECT 1/0", "BEGIN", "COMMIT",
		"ROLLBACK", "", "; ;", "COPY t FROM STDIN", "COPY t TO STDOUT", "SELECT 1; COPY t FROM STDIN; SELECT 2", "COPY t FROM STDIN; COPY t FROM STDIN", "DELETE FROM t",
		"DEALLOCATE ALL", "NOTIFY a", "LISTEN a; NOTIFY a", "SELECT generate_series(1,3)", "DO $$ BEGIN RAISE NOTICE 'x'; END $$",
		"SAVEPOINT s", "ROLLBACK TO s", "SELEC", "SET work_mem='1MB'", "COPY nothing FROM STDIN", "DECLARE b CURSOR FOR SELECT generate_series(1,5)", "FETCH 2 FROM b"},
	parses: []string{"SELECT 1", "SELECT generate_series(1,3)", "SELECT nothing", "SELECT 1/0", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2) RETURNING a",
		"", "BEGIN", "COMMIT", "ROLLBACK", "COPY t FROM STDIN", "COPY t TO STDOUT", "SELEC", "SELECT 1; SELECT 2", "NOTIFY a", "SELECT $1::int"},
	raw: [][]byte{copyEnd, copyGood, copyGood, copyBad, copyFail, msg("F"), {'!', 0, 0, 0, 4}, {'Q', 0, 0, 0, 3}, {'d', 0, 0, 0, 4},
		append([]byte("d\x00\x00\x00\x09"), "7\tx\ny"...), {'Q', 0, 0, 0, 4}, {'P', 0, 0, 0, 5, 0}, {'B', 0, 0, 0, 4}, {'S', 0, 0, 0, 5, 0}, {'E', 0, 0, 0, 4}, {'D', 0, 0, 0, 5, 'X'}, {'p', 0, 0, 0, 4}},
}

var readerMenu = menu{
	queries: []string{"SELECT 1", "SELECT nothing", "SELECT 1/0", "SELECT 1; SELECT 2; SELECT 1/0", "BEGIN", "COMMIT",
		"ROLLBACK", "", "; ;", "COPY t TO STDOUT", "DEALLOCATE ALL", "LISTEN a", "SELECT generate_series(1,3)", "SAVEPOINT s", "ROLLBACK TO s", "SET work_mem='1MB'",
		"DECLARE b CURSOR FOR SELECT generate_series(1,5)", "FETCH 2 FROM b", "SELECT * FROM t"},
	parses: []string{"SELECT 1", "SELECT generate_series(1,3)", "SELECT nothing", "SELECT 1/0", "", "BEGIN", "COPY t TO STDOUT", "SELECT 1; SELECT 2", "SELECT $1::int"},
	raw: [][]byte{copyEnd, copyGood, copyFail, {'!', 0, 0, 0, 4}, {'Q', 0, 0, 0, 3}, {'d', 0, 0, 0, 4}, {'Q', 0, 0, 0, 4}, {'P', 0, 0, 0, 5, 0}, {'P', 0, 0, 0, 6, 0, 0},
		{'P', 0, 0, 0, 7, 0, 0, 0}, {'P', 0, 0, 0, 8, 0, 0, 0, 1}, {'P', 0, 0, 0, 9, 0, 0, 0, 0, 0}, {'Q', 0, 0, 0, 6, 0, 0},
		[]byte("Q\x00\x00\x00\x0eINSERT INTO"), []byte("Q\x00\x00\x00\x12SELECT 1\x00INSER"), []byte("P\x00\x00\x00\x0f\x00INSERT\x00\x00\x01\x00"), {'B', 0, 0, 0, 4},
		{'S', 0, 0, 0, 5, 0}, {'E', 0, 0, 0, 4}, {'D', 0, 0, 0, 5, 'X'}, {'p', 0, 0, 0, 4}},
}

// Whatever a leader sends, and whatever reads a reader sends, in whatever pieces: the server's
// answer comes through to the byte.
func TestRandomStreams(t *testing.T) {
	// Each is four sessions of a server's; -rapid.checks=1000 looks longer.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = flag.Set("rapid.checks", "25")
		defer func() { _ = flag.Set("rapid.checks", f.DefValue) }()
	}
	testenv.EachPostgres(t, func(t *testing.T, v testenv.Version, pg *servers.Process) {
		r := newRigAt(t, pg, nil)
		mustExec(t, r.admin, "INSERT INTO t VALUES (1), (2), (3)")
		r.guard.noPrep = true
		token := r.guard.lead().Reveal()
		compare := func(rt *rapid.T, m menu, reset string, direct, proxied []string) {
			chunks, fin := m.draw(rt)
			run := func(toServer bool, params []string) (string, string, bool) {
				mustExec(t, r.admin, reset)
				said, whole := exchange(r.peer(toServer, params...), chunks, fin)
				return show(said, false), r.rows(), whole
			}
			want, wantRows, whole := run(true, direct)
			got, rows, gotWhole := run(false, proxied)
			// A server that closes with bytes unread may take its last words away.
			if whole && gotWhole && got != want || !whole && gotWhole && !strings.HasPrefix(got, want) || rows != wantRows {
				rt.Fatalf("client sends (fin %v)\n%s\nsees\n%s\nshould see\n%s\nrows %s, not %s", fin, show(bytes.Join(chunks, nil), true), got, want, rows, wantRows)
			}
		}
		t.Run("leader", func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				compare(rt, leaderMenu, "DELETE FROM t", nil, []string{"fence.token", token})
			})
		})
		if majors := servers.PostgresMajors(); v.Major == majors[0] || v.Major == majors[len(majors)-1] {
			t.Run("ruled", func(t *testing.T) {
				before := r.addr
				defer func() { r.addr = before }()
				r.serve(func(c *Config) { c.Rules = randomRules(t) })
				rapid.Check(t, func(rt *rapid.T) {
					compare(rt, leaderMenu, "DELETE FROM t", nil, []string{"fence.token", token})
				})
			})
		}
		t.Run("reader", func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				compare(rt, readerMenu, "SELECT 1", []string{"default_transaction_read_only", "on"}, nil)
			})
		})
	})
}

// randomRules are rules by which the leader may write all of the menu, once the server has
// said where its names are.
func randomRules(t *testing.T) *policy.Rules {
	t.Helper()
	r, err := policy.NewRules([]policy.Rule{
		{Kind: policy.Table, Patterns: []string{"public.*"}, Election: "orders"},
		{Kind: policy.Table, Patterns: []string{"scratch.*"}, Access: policy.Open},
	}, "orders", election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
