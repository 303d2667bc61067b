package redisfence_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func openSentinel(t testing.TB, s *servers.RedisSentinel) *redisfence.Fence {
	t.Helper()
	f, err := redisfence.OpenSentinel(t.Context(), "redis+sentinel://"+s.Addrs()+"/0?master_name="+servers.SentinelMaster, redisfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// The primary is lost with a bound connection, and a takeover happens on the next one, while
// the old one is down: nobody waits for it. What is connected to the old one is closed.
func TestSentinelFailover(t *testing.T) {
	for _, program := range []string{"redis-server", testenv.ValkeyServer} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			s := testenv.RedisSentinel(t, program)
			f := openSentinel(t, s)
			x := term(t, 7)
			put(t, f, x.Election, guardtest.Record(x, guard.Severed, 1))
			if n := client(t, s.Primary.Addr).Wait(t.Context(), 1, 0).Val(); n != 1 {
				t.Fatal("the replica lacks the record")
			}
			session, err := f.Primary().Dial(t.Context())
			if err != nil || session.Server != s.Primary.Addr {
				t.Fatal(session, err)
			}
			if err := s.Primary.Freeze(); err != nil {
				t.Fatal(err)
			}
			_ = session.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := session.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Error("the session's connection was not closed:", err)
			}
			eventually(t, func() bool {
				addr, err := f.Primary().Addr(t.Context())
				return err == nil && addr == s.Replica.Addr
			})
			var r guard.Record
			eventually(t, func() bool { r, err = f.Read(t.Context(), x.Election); return err == nil })
			if r != guardtest.Record(x, guard.Severed, 1) {
				t.Errorf("the record is %+v", r)
			}
			y := after(x)
			if err := f.Swap(t.Context(), x.Election, r, guardtest.Record(y, guard.Raised, 2)); err != nil {
				t.Fatal(err)
			}
			if err := f.Sever(t.Context(), y); err != nil {
				t.Errorf("the server that is down held up the takeover: %v", err)
			}
			if err := s.Primary.Thaw(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A replica that is not down and cannot be swept fails the takeover, as without sentinels.
func TestSentinelReplicaThatCannotBeSwept(t *testing.T) {
	s := testenv.RedisSentinel(t, "redis-server")
	f := openSentinel(t, s)
	c := client(t, s.Replica.Addr)
	if err := c.Do(t.Context(), "ACL", "SETUSER", "default", "-client|list").Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.Sever(t.Context(), term(t, 7)); !errors.Is(err, redisfence.ErrNode) || !errors.Is(err, redisfence.ErrRights) {
		t.Errorf("got %v", err)
	}
}

// What is bound on a new primary by an older term than its own record shows goes; the rest
// stays.
func TestNewPrimaryIsPrepared(t *testing.T) {
	s := testenv.RedisSentinel(t, "redis-server")
	f := openSentinel(t, s)
	x := term(t, 7)
	put(t, f, x.Election, guardtest.Record(x, guard.Severed, 1))
	older, other := x, x
	older.Number--
	other.Digest[0]++ // the same number of another holder
	before, conflicting, same, unknown := named(t, s.Primary, older), named(t, s.Primary, other), named(t, s.Primary, x), x
	unknown.Election += "x"
	left := named(t, s.Primary, unknown)
	if err := f.Prepare(t.Context(), s.Primary.Addr); err != nil {
		t.Fatal(err)
	}
	between, fine := named(t, s.Primary, unknown, older, unknown), named(t, s.Primary, unknown, x)
	if err := f.Prepare(t.Context(), s.Primary.Addr); err != nil {
		t.Fatal(err)
	}
	for c, gone := range map[*conn]bool{before: true, conflicting: true, same: false, left: false, between: true, fine: false} {
		if err := c.Write(t.Context()); (err != nil) != gone {
			t.Errorf("gone %v: %v", gone, err)
		}
	}
	if err := f.Prepare(t.Context(), s.Replica.Addr); !errors.Is(err, redisfence.ErrReplica) {
		t.Errorf("a replica: %v", err)
	}
}

// named is a connection that has the names of terms.
func named(t testing.TB, p *servers.Process, terms ...guard.Term) *conn {
	t.Helper()
	c := client(t, p.Addr).Conn()
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Do(t.Context(), "CLIENT", "SETNAME", joined(terms...)).Err(); err != nil {
		t.Fatal(err)
	}
	return &conn{c}
}

func joined(terms ...guard.Term) string {
	var names []string
	for _, x := range terms {
		names = append(names, redisfence.ConnName(x))
	}
	return redisfence.JoinConnNames(names...)
}
