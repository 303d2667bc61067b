package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// What expires and what stays.
func TestKeys(t *testing.T) {
	p := testenv.SharedRedis(t)
	b, c := opened(t, p.Addr), plain(t, p.Addr)
	id := testenv.Name(t, "keys")
	k := "fenceproxy:{" + id + "}:"
	g := win(t, b, id, election.AcquireOptions{TTL: election.MinTTL})
	if n := c.Get(t.Context(), k+"number").Val(); n != fmt.Sprint(g.Number) {
		t.Errorf("number %q, granted was %d", n, g.Number)
	}
	if d := c.TTL(t.Context(), k+"number").Val(); d != -1 {
		t.Errorf("the number expires: %v", d)
	}
	testenv.Eventually(t, "the lease's key going", func() bool { return c.Exists(t.Context(), k+"lease").Val() == 0 })
	if keys := c.Keys(t.Context(), k+"*").Val(); len(keys) != 1 || keys[0] != k+"number" {
		t.Errorf("left: %q", keys)
	}
}

// A record that somebody else wrote is an error, never a leader and never a number.
func TestCorrupt(t *testing.T) {
	p := testenv.Redis(t)
	b, c := opened(t, p.Addr), plain(t, p.Addr)
	token := election.NewToken()
	digest := token.Digest().String()
	lease := func(text string) func(k string) error {
		return func(k string) error { return c.Set(t.Context(), k+"lease", text, time.Hour).Err() }
	}
	for name, c := range map[string]struct {
		write    func(k string) error
		validate bool // Validate must see it too
	}{
		"LeaseOfAnotherType": {func(k string) error {
			return errors.Join(c.HSet(t.Context(), k+"lease", "x", "y").Err(), c.Expire(t.Context(), k+"lease", time.Hour).Err())
		}, true},
		"LeaseEmpty":             {lease(""), true},
		"LeaseOfOneWord":         {lease("x"), true},
		"LeaseWithoutOwner":      {lease(digest + " 1 1000"), true},
		"LeaseWithoutOwnersName": {lease(digest + " 1 1000 "), true},
		"LeaseWithTwoOwners":     {lease(digest + " 1 1000 o p"), true},
		"LeaseOfTwoLines":        {lease(digest + " 1 1000 o\n"), true},
		"LeaseDigestShort":       {lease(digest[1:] + " 1 1000 o"), true},
		"LeaseDigestWord":        {lease("x" + digest[1:] + " 1 1000 o"), true},
		"LeaseNumberWord":        {lease(digest + " x 1000 o"), true},
		"LeaseNumberZero":        {lease(digest + " 0 1000 o"), true},
		"LeaseNumberNegative":    {lease(digest + " -1 1000 o"), true},
		"LeaseNumberTooLarge":    {lease(digest + " 9223372036854775808 1000 o"), true},
		"LeaseTTLWord":           {lease(digest + " 1 x o"), true},
		"LeaseWithoutEnd": {func(k string) error {
			return c.Set(t.Context(), k+"lease", digest+" 1 1000 o", 0).Err()
		}, true},
		"NumberOfAnotherType":  {func(k string) error { return c.LPush(t.Context(), k+"number", "x").Err() }, false},
		"NumberWord":           {func(k string) error { return c.Set(t.Context(), k+"number", "x", 0).Err() }, false},
		"NumberNegative":       {func(k string) error { return c.Set(t.Context(), k+"number", "-1", 0).Err() }, false},
		"NumberFraction":       {func(k string) error { return c.Set(t.Context(), k+"number", "1e3", 0).Err() }, false},
		"NumberTooLarge":       {func(k string) error { return c.Set(t.Context(), k+"number", "9223372036854775808", 0).Err() }, false},
		"HoldOffWithoutAnyEnd": {func(k string) error { return c.Set(t.Context(), k+"holdoff", "1", 0).Err() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			id := testenv.Name(t, "corrupt")
			if err := c.write("fenceproxy:{" + id + "}:"); err != nil {
				t.Fatal(err)
			}
			for _, o := range []election.AcquireOptions{{}, {Token: token}} {
				if r, err := b.Acquire(t.Context(), id, o); !errors.Is(err, election.ErrCorrupt) {
					t.Errorf("Acquire: %+v, %v", r, err)
				}
			}
			if r, err := b.Validate(t.Context(), id, token); c.validate && !errors.Is(err, election.ErrCorrupt) {
				t.Errorf("Validate: %+v, %v", r, err)
			}
			if r, err := b.Status(t.Context(), id); !errors.Is(err, election.ErrCorrupt) {
				t.Errorf("Status: %+v, %v", r, err)
			}
		})
	}
}
