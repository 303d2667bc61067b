package zookeeper

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Digest authentication: what one user keeps, another can neither read nor change, and
// one who may read can validate.
func TestRights(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	owner := Options{User: "owner", Password: "the password"}
	b := opened(t, z.Addrs(), "/rights/a/b", owner)
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	validate(t, opened(t, z.Addrs(), "/rights/a/b", owner), "e", g.Token, election.StandingCurrent)
	for _, o := range []Options{{}, {User: "owner", Password: "another"}, {User: "another", Password: "the password"}} {
		other := opened(t, z.Addrs(), "/rights/a/b", o)
		for name, call := range map[string]func() error{
			"Acquire":  func() error { _, err := other.Acquire(within(t), "e", election.AcquireOptions{}); return err },
			"Create":   func() error { _, err := other.Acquire(within(t), "new", election.AcquireOptions{}); return err },
			"Renew":    func() error { _, err := other.Renew(within(t), "e", g.Token); return err },
			"Validate": func() error { _, err := other.Validate(within(t), "e", g.Token); return err },
			"Status":   func() error { _, err := other.Status(within(t), "e"); return err },
		} {
			err := call()
			if !errors.Is(err, election.ErrUnavailable) || !errors.Is(err, zk.ErrNoAuth) || strings.Contains(err.Error(), "password") {
				t.Errorf("%s by %q: %v", name, o.User, err)
			}
		}
	}
	shown := owner
	shown.ACL = append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...)
	b = opened(t, z.Addrs(), "/rights/shown", shown)
	g = acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	reader := opened(t, z.Addrs(), "/rights/shown", Options{})
	validate(t, reader, "e", g.Token, election.StandingCurrent)
	if _, err := reader.Renew(within(t), "e", g.Token); !errors.Is(err, zk.ErrNoAuth) {
		t.Error(err)
	}
	renew(t, b, "e", g.Token, election.Renewed)
}

// What is not ours is neither believed nor overwritten.
func TestForeignNodes(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	c := plain(t, z)
	b := opened(t, z.Addrs(), "/foreign", Options{})
	acquire(t, b, "first", election.AcquireOptions{}, election.Acquired)
	valid := record{
		Number: 5, State: stateReleased, Owner: "a", Digest: election.NewToken().Digest().String(), TTL: 1000, Session: "0x1",
	}
	for i, data := range []string{
		"", "{}", "null", "[]", "x", `{"number":1}`, string(record{}.encode()),
		strings.Replace(string(valid.encode()), "5", "0", 1), strings.Replace(string(valid.encode()), "5", "5.5", 1),
		strings.Replace(string(valid.encode()), "released", "other", 1), strings.Replace(string(valid.encode()), `"a"`, `""`, 1),
		strings.Replace(string(valid.encode()), "1000", "9223372036854775807", 1), strings.Replace(string(valid.encode()), "1000", "-1", 1),
		strings.Replace(string(valid.encode()), `"digest":"`, `"digest":"00`, 1),
	} {
		id := election.NewToken().Reveal()[1:]
		id = "e" + id
		if _, err := c.Create(b.path(id), []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		if r, err := b.Acquire(within(t), id, election.AcquireOptions{}); !errors.Is(err, election.ErrCorrupt) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
		if r, err := b.Validate(within(t), id, election.NewToken()); !errors.Is(err, election.ErrCorrupt) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
		if now, _, err := c.Get(b.path(id)); err != nil || string(now) != data {
			t.Errorf("%d: %s, %v", i, now, err)
		}
	}
	// A child of somebody else's passes for a lease, and then nothing can be acquired;
	// the call ends and says so.
	if _, err := c.Create(b.path("child"), valid.encode(), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(b.path("child")+"/x", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if r, err := b.Acquire(within(t), "child", election.AcquireOptions{}); !errors.Is(err, election.ErrUnavailable) {
		t.Errorf("%+v, %v", r, err)
	}
}

// Validate is one flight, a sync and a read, and writes nothing.
func TestValidateIsOneRead(t *testing.T) {
	t.Parallel()
	z := testenv.SharedZooKeeper(t)
	var p tap
	b := opened(t, z.Addrs(), "/one", Options{Dial: p.dial})
	g := acquire(t, b, "e", election.AcquireOptions{}, election.Acquired)
	p.wrote()
	validate(t, b, "e", g.Token, election.StandingCurrent)
	w := p.wrote()
	if len(w) != 1 || w[0][11] != opSync || w[0][len(syncRequest)+11] != opGetData ||
		len(w[0]) != len(syncRequest)+4+8+4+len(b.path("e"))+1 {
		t.Errorf("%q", w)
	}
}
