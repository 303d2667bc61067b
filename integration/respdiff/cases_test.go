package respdiff

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// R2: a server's reply of 40,000 nested arrays passes as it is, whole and byte by byte, and
// so does what follows it.
func TestR02NestedReply(t *testing.T) {
	reply := strings.Repeat("*1\r\n", 40_000) + ":1\r\n" + strings.Repeat("%1\r\n+k\r\n", 40_000) + "_\r\n+after\r\n"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Accept(t, l, func(c net.Conn) {
		b := make([]byte, 100)
		if _, err := c.Read(b); err == nil {
			_, _ = c.Write([]byte(reply))
		}
	})
	st := newStage(t, servers.Redis7)
	for _, bytewise := range []bool{false, true} {
		c := resp.Config{Upstream: l.Addr().String(), Guard: noGuard{}, Control: st.direct.super, Election: jobs}
		addr := serve(t, c, bytewise)
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := got.ReadFrom(nc); err != nil {
			t.Fatal(err)
		}
		_ = nc.Close()
		if got.String() != reply {
			t.Errorf("bytewise %v: %d bytes came, not these %d", bytewise, got.Len(), len(reply))
		}
	}
}

// R11: a leader waits in BLPOP, with commands behind it, when it is taken over: it gets a
// clear error and the close, and pops nothing afterwards.
func TestR11TakeoverWhileBlocked(t *testing.T) {
	onEach(t, func(t *testing.T, _ servers.RedisVersion, st *stage) {
		ctx := testenv.Context(t)
		for _, mode := range allModes {
			if err := st.direct.clear(ctx); err != nil {
				t.Fatal(err)
			}
			p := st.proxy[mode]
			p.token = st.leader.Token.Reveal()
			r := &run{place: p, as: "leader", proto: "2", side: &side{}}
			for _, name := range []string{"a", "b"} {
				if err := r.on(name); err != nil {
					t.Fatal(err)
				}
				defer r.now.close()
				r.send(command("BLPOP", "l", "0"))
				r.send(command("SET", "written", "late"))
			}
			if err := r.poll(ctx, []string{"INFO", "clients"}, "blocked_clients:2\r"); err != nil {
				t.Fatal(err)
			}
			if _, err := st.elections.Resign(ctx, jobs, st.leader.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			next, err := st.elections.Acquire(ctx, jobs, election.AcquireOptions{Owner: "w2", TTL: election.MaxTTL})
			if err != nil || next.Status != election.Acquired {
				t.Fatalf("%+v, %v", next, err)
			}
			st.leader = next
			r.token = next.Token.Reveal()
			if err := r.on("next"); err != nil {
				t.Fatal(err)
			}
			defer r.now.close()
			r.send(command("RPUSH", "l", "x"))
			if b, err := r.now.await(1, whichever); err != nil || string(b) != ":1\r\n" {
				t.Fatalf("%q, %v", b, err)
			}
			for _, c := range r.side.conns[:2] {
				if err := c.end(); err != nil {
					t.Fatal(err)
				}
				if last := c.got[len(c.got)-1]; !bytes.HasPrefix(last, []byte("-FENCED ")) || len(c.got) != 2 {
					t.Errorf("%s: the blocked leader got %q", mode, c.got[1:])
				}
			}
			if n := st.direct.super.LLen(ctx, "l").Val(); n != 1 {
				t.Errorf("%s: %d elements are left", mode, n)
			}
			if n := st.direct.super.Exists(ctx, "written").Val(); n != 0 {
				t.Errorf("%s: what stood behind the blocked command was written", mode)
			}
		}
	})
}

// noGuard admits nobody.
type noGuard struct{}

func (noGuard) Admit(context.Context, guard.Credential) (*guard.Permit, error) {
	return nil, &guard.Refusal{Reason: guard.NoCredential}
}
