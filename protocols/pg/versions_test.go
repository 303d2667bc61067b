package pg

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// hello logs in with a protocol version and returns the whole of what the server says.
func (r *rig) hello(direct bool, version uint32, params ...string) (p *peer, types string, negotiated, key []byte) {
	r.t.Helper()
	addr := r.addr
	if direct {
		addr = r.pg.Addr
	}
	p = dial(r.t, addr)
	p.send(startPacket(version, append([]string{"user", "app", "database", r.db}, params...)...))
	for {
		m := p.message()
		switch m[0] {
		case 'v':
			negotiated = m[5:]
		case 'K':
			key = m[5:]
		}
		if m[0] != 'S' {
			types += string(m[0])
		}
		if m[0] == 'Z' || m[0] == 'E' {
			return p, types, negotiated, key
		}
	}
}

// P12: whichever minor version and options a client asks for, the answer is the server's own,
// and the only one.
func TestProtocolVersions(t *testing.T) {
	testenv.EachPostgres(t, func(t *testing.T, v testenv.Version, pg *servers.Process) {
		r := newRigAt(t, pg, nil)
		token := r.guard.lead().Reveal()
		for minor := range uint32(4) {
			for _, params := range [][]string{nil, {"_pq_.unheard_of", "1"}, {"_pq_.unheard_of", "1", "_pq_.fence.token", "2"}, {"_PQ_.x", "1"}} {
				name := fmt.Sprint("3.", minor, " ", params)
				_, want, wantNegotiated, wantKey := r.hello(true, v3|minor, params...)
				for _, credential := range [][]string{nil, {"fence.token", token}} {
					_, got, negotiated, key := r.hello(false, v3|minor, append(credential, params...)...)
					if got != want || string(negotiated) != string(wantNegotiated) || len(key) != len(wantKey) {
						t.Errorf("%s: %s %q %d, not %s %q %d", name, got, negotiated, len(key), want, wantNegotiated, len(wantKey))
					}
				}
				if long := v.Major >= 18 && minor >= 2 && params == nil; long && len(wantKey) != 36 {
					t.Errorf("%s: a key of %d bytes", name, len(wantKey))
				}
			}
		}
		if n := r.guard.boundSessions(); n == 0 {
			t.Error("nothing was bound")
		}
	})
}

// P11: a cancel ends the query that runs, and not the next one; keys of any length.
func TestCancel(t *testing.T) {
	testenv.EachPostgres(t, func(t *testing.T, _ testenv.Version, pg *servers.Process) {
		r := newRigAt(t, pg, nil)
		for _, minor := range []uint32{0, 2} {
			p, _, _, key := r.hello(false, v3|minor)
			for _, ssl := range []bool{false, true} {
				p.send(appendQuery(nil, "SELECT pg_sleep(30)"))
				for queryString(t, r.admin, "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)%' AND state='active' AND datname=$1 AND usename='app'", r.db) != "1" {
					runtime.Gosched()
				}
				c := dial(t, r.addr)
				if ssl {
					c.send([]byte{0, 0, 0, 8, 4, 210, 22, 47})
					var no [1]byte
					if _, err := io.ReadFull(c.c, no[:]); err != nil || no[0] != 'N' {
						t.Fatal(err, no)
					}
				}
				c.send(append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(8+len(key))), codeCancel), key...))
				if b := c.rest(); len(b) != 0 {
					t.Errorf("%q", b)
				}
				p.send(appendQuery(nil, "SELECT 'next'"))
				if got := outcome(p.until('Z')); got != "T\nE ERROR 57014\nZ I\n" && got != "E ERROR 57014\nZ I\n" {
					t.Error(got)
				}
				if got := outcome(p.until('Z')); got != "T\nD\nC \"SELECT 1\"\nZ I\n" {
					t.Error(got)
				}
			}
		}
	})
}

// The functions that a reader may call by number are the same in every version.
func TestReadingCalls(t *testing.T) {
	testenv.EachPostgres(t, func(t *testing.T, _ testenv.Version, pg *servers.Process) {
		rows, err := connect(t, pg.DSN(servers.Superuser, "postgres")).Query(t.Context(), "SELECT oid, proname FROM pg_proc")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var names []string
		for rows.Next() {
			var oid uint32
			var name string
			if err := rows.Scan(&oid, &name); err != nil {
				t.Fatal(err)
			}
			if readingCall(oid) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != "lo_close lo_lseek lo_lseek64 lo_open lo_tell lo_tell64 loread" {
			t.Error(got)
		}
	})
}

// FunctionCall goes through for a leader; a reader may only read large objects by it.
func TestFunctionCalls(t *testing.T) {
	testenv.EachPostgres(t, func(t *testing.T, _ testenv.Version, pg *servers.Process) {
		r := newRigAt(t, pg, nil)
		oid := queryString(t, r.admin, "SELECT oid::text FROM pg_proc WHERE proname='lo_creat'")
		var n uint32
		if _, err := fmt.Sscan(oid, &n); err != nil {
			t.Fatal(err)
		}
		// lo_creat(-1), in binary.
		call := binary.BigEndian.AppendUint32([]byte{'F', 0, 0, 0, 24}, n)
		call = append(call, 0, 1, 0, 1, 0, 1, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff, 0, 1)
		for _, c := range []struct {
			params []string
			says   string
			made   string
		}{
			{nil, "E ERROR 25006\nZ I\n", "0"},
			{[]string{"fence.token", r.guard.lead().Reveal()}, "V", "1"},
		} {
			p := r.peer(false, c.params...)
			p.send(call)
			got := outcome(p.until('Z'))
			if got[:1] != c.says[:1] || c.made == "0" && got != c.says {
				t.Errorf("%v: %s", c.params, got)
			}
			if n := queryString(t, r.admin, "SELECT count(*)::text FROM pg_largeobject_metadata"); n != c.made {
				t.Errorf("%v: %s large objects", c.params, n)
			}
		}
	})
}
