package electiontest

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
)

// fails calls f and fails unless it returns the error wanted, and nothing else.
func fails(t testing.TB, want error, f func() (any, error)) {
	t.Helper()
	r, err := f()
	if !errors.Is(err, want) {
		t.Errorf("%T: error %v, want %v", r, err, want)
	}
	if !reflect.ValueOf(r).IsZero() {
		t.Errorf("an error comes with the result %+v", r)
	}
}

// five are the five calls with the same context, election and token.
func five(ctx context.Context, b election.Backend, id string, token election.Token) map[string]func() (any, error) {
	return map[string]func() (any, error){
		"Acquire": func() (any, error) {
			return b.Acquire(ctx, id, election.AcquireOptions{Token: token, TTL: long})
		},
		"Renew":    func() (any, error) { return b.Renew(ctx, id, token) },
		"Resign":   func() (any, error) { return b.Resign(ctx, id, token, election.ResignOptions{}) },
		"Status":   func() (any, error) { return b.Status(ctx, id) },
		"Validate": func() (any, error) { return b.Validate(ctx, id, token) },
	}
}

// Bad arguments are refused, each with its own error, and change nothing.
func (s suite) arguments(t *testing.T) {
	t.Parallel()
	u := s.user(t)
	g := u.win(election.AcquireOptions{Owner: "a"})
	for _, id := range []string{"", "-", "a b", "a{b}", "a'b", "a\x00b", "ä", strings.Repeat("x", election.MaxIDLen+1)} {
		for name, call := range five(u.ctx, u.b, id, g.Token) {
			t.Run(fmt.Sprintf("ID/%s/%.8q", name, id), func(t *testing.T) { fails(t, election.ErrInvalidID, call) })
		}
	}
	for name, call := range five(u.ctx, u.b, u.id, election.Token{}) {
		if name != "Acquire" && name != "Status" {
			t.Run("Token/"+name, func(t *testing.T) { fails(t, election.ErrInvalidToken, call) })
		}
	}
	for name, c := range map[string]struct {
		o    election.AcquireOptions
		want error
	}{
		"OwnerSpace": {election.AcquireOptions{Owner: "a b"}, election.ErrInvalidOwner},
		"OwnerLong":  {election.AcquireOptions{Owner: strings.Repeat("x", election.MaxOwnerLen+1)}, election.ErrInvalidOwner},
		"TTLShort":   {election.AcquireOptions{TTL: election.MinTTL - 1}, election.ErrInvalidTTL},
		"TTLLong":    {election.AcquireOptions{TTL: election.MaxTTL + time.Millisecond}, election.ErrInvalidTTL},
		"TTLMinus":   {election.AcquireOptions{TTL: -time.Second}, election.ErrInvalidTTL},
		"FloorMinus": {election.AcquireOptions{MinFencing: -1}, election.ErrInvalidFencing},
	} {
		c.o.Token = g.Token
		t.Run("Acquire"+name, func(t *testing.T) {
			fails(t, c.want, func() (any, error) { return u.b.Acquire(u.ctx, u.id, c.o) })
		})
	}
	for _, d := range []time.Duration{-1, election.MaxTTL + 1} {
		t.Run(fmt.Sprint("Resign", d), func(t *testing.T) {
			fails(t, election.ErrInvalidTTL, func() (any, error) {
				return u.b.Resign(u.ctx, u.id, g.Token, election.ResignOptions{HoldOff: d})
			})
		})
	}
	u.standing(g.Token, election.StandingCurrent, g.Number)

	// The longest and the oddest that are allowed.
	id := "A" + strings.Repeat("._-:/", election.MaxIDLen)[:election.MaxIDLen-1]
	owner := strings.Repeat(`"'\{}$%;~`, election.MaxOwnerLen)[:election.MaxOwnerLen]
	token, err := election.ParseToken(strings.Repeat("~.-_", election.MaxTokenLen/4))
	if err != nil {
		t.Fatal(err)
	}
	odd := u.of(id)
	r := odd.win(election.AcquireOptions{Owner: owner, Token: token, TTL: election.MaxTTL})
	if r.Owner != owner || odd.status().Owner != owner || odd.validate(token).Owner != owner {
		t.Errorf("owner %q came back as %q", owner, r.Owner)
	}
	odd.standing(token, election.StandingCurrent, r.Number)
	odd.resign(token, election.ResignOptions{}, election.Released)
}

// A context that has ended is an error of both kinds, and nothing is changed.
func (s suite) contexts(t *testing.T) {
	t.Parallel()
	u := s.user(t)
	g := u.win(election.AcquireOptions{Owner: "a"})
	cancelled, cancel := context.WithCancel(u.ctx)
	cancel()
	expired, cancel := context.WithDeadline(u.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for name, ctx := range map[string]context.Context{"Cancelled": cancelled, "Expired": expired} {
		for call, f := range five(ctx, u.b, u.id, g.Token) {
			t.Run(name+"/"+call, func(t *testing.T) {
				fails(t, election.ErrUnavailable, f)
				fails(t, ctx.Err(), f)
			})
		}
	}
	u.standing(g.Token, election.StandingCurrent, g.Number)
	vacant := u.of(fresh())
	for _, f := range five(cancelled, u.b, vacant.id, g.Token) {
		fails(t, context.Canceled, f)
	}
	if r := vacant.status(); r.Status != election.Vacant || r.Number != 0 {
		t.Errorf("Status %+v after cancelled calls", r)
	}
}

// Safety: the store keeps digests, and no answer but the holder's own has a token.
func (s suite) secrets(t *testing.T) {
	t.Parallel()
	u := s.user(t)
	holder := u.win(election.AcquireOptions{Owner: "the-holder-itself"})
	shown := fmt.Sprintf("%#v %#v %#v %#v", u.status(), u.validate(holder.Token), u.validate(election.NewToken()),
		u.acquire(election.AcquireOptions{}))
	asked := []election.Token{holder.Token}
	ask := func(token election.Token) {
		asked = append(asked, token)
		u.acquire(election.AcquireOptions{Token: token})
		u.validate(token)
		u.renew(token, election.Lost)
		u.resign(token, election.ResignOptions{}, election.NotOwner)
	}
	ask(election.NewToken())
	u.renew(holder.Token, election.Renewed)
	held := s.Dump(t, u.b)
	// The dump is one of the right store: it has the owner, and the digest.
	digest := holder.Token.Digest()
	if !strings.Contains(held, "the-holder-itself") || !strings.Contains(held, digest.String()) {
		t.Fatalf("the dump lacks the holder %q or its digest %v:\n%s", holder.Owner, digest, held)
	}
	u.resign(holder.Token, election.ResignOptions{}, election.Released)
	u.win(election.AcquireOptions{Token: holder.Token})
	dump := held + s.Dump(t, u.b) + shown
	for _, token := range asked {
		text := []byte(token.Reveal())
		for _, form := range []string{
			string(text), hex.EncodeToString(text), base64.StdEncoding.EncodeToString(text)[:40],
		} {
			if strings.Contains(dump, form) {
				t.Errorf("the store or an answer holds a token's text:\n%s", dump)
			}
		}
	}
}

// A closed handle says so, and its leadership goes on.
func (s suite) closing(t *testing.T) {
	t.Parallel()
	b := s.Open(t)
	u := user{t, within(t), b, fresh()}
	g := u.win(election.AcquireOptions{Owner: "a"})
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, call := range five(u.ctx, b, u.id, g.Token) {
		t.Run(name, func(t *testing.T) { fails(t, election.ErrClosed, call) })
	}
	if s.Server != "" {
		u.with(s.open(t)).standing(g.Token, election.StandingCurrent, g.Number)
	}
}
