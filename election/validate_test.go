package election

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Safety: a number is higher than the one before it, whatever the clock and the
// floor say, and never below the floor.
func TestNextNumberRises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		previous := rapid.Int64Min(0).Draw(t, "previous")
		floor := rapid.Int64Min(0).Draw(t, "floor")
		now := time.UnixMilli(rapid.Int64Range(-1<<53, 1<<53).Draw(t, "now"))
		n, err := NextNumber(previous, floor, now)
		if previous == math.MaxInt64 {
			if !errors.Is(err, ErrNumbersExhausted) || n != 0 {
				t.Fatalf("%d, %v", n, err)
			}
			return
		}
		if err != nil || n <= previous || n < floor || n < now.UnixMilli() || n <= 0 {
			t.Fatalf("NextNumber(%d, %d, %v) = %d, %v", previous, floor, now, n, err)
		}
		if n != previous+1 && n != floor && n != now.UnixMilli() {
			t.Fatalf("%d is none of the three terms", n)
		}
	})
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "0", "jobs/nightly", "a.b_c-d:e/f", strings.Repeat("a", MaxIDLen)} {
		if err := CheckID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", "-a", "/a", "a b", "a{b}", "a;b", "a\x00", "é", "a\n", strings.Repeat("a", MaxIDLen+1)} {
		if err := CheckID(id); !errors.Is(err, ErrInvalidID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		if CheckID(id) == nil && strings.ContainsAny(id, "{}'\"\\ ;=*?[]\r\n\x00") {
			t.Fatalf("%q accepted", id)
		}
	})
}

func TestOwners(t *testing.T) {
	for _, o := range []string{"", "a b", "a\n", "é", strings.Repeat("a", MaxOwnerLen+1)} {
		if err := CheckOwner(o); !errors.Is(err, ErrInvalidOwner) {
			t.Errorf("%q: %v", o, err)
		}
	}
	if err := CheckOwner("a b"); !strings.HasSuffix(err.Error(), "character 2 is a space") {
		t.Error(err)
	}
	a, b := DefaultOwner(), DefaultOwner()
	if CheckOwner(a) != nil || a == b {
		t.Errorf("%q %q", a, b)
	}
}

func TestNormalize(t *testing.T) {
	o, err := AcquireOptions{}.Normalize("e")
	if err != nil || o.TTL != DefaultTTL || o.Owner == "" || o.Token.IsZero() || o.MinFencing != 0 {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = AcquireOptions{TTL: 1500*time.Millisecond + 999*time.Microsecond}.Normalize("e")
	if err != nil || o.TTL != 1500*time.Millisecond {
		t.Errorf("%v, %v", o.TTL, err)
	}
	for _, c := range []struct {
		id   string
		o    AcquireOptions
		want error
	}{
		{"", AcquireOptions{}, ErrInvalidID},
		{"e", AcquireOptions{Owner: "a b"}, ErrInvalidOwner},
		{"e", AcquireOptions{TTL: -time.Second}, ErrInvalidTTL},
		{"e", AcquireOptions{TTL: MinTTL - 1}, ErrInvalidTTL},
		{"e", AcquireOptions{TTL: time.Nanosecond}, ErrInvalidTTL},
		{"e", AcquireOptions{TTL: MaxTTL + time.Millisecond}, ErrInvalidTTL},
		{"e", AcquireOptions{MinFencing: -1}, ErrInvalidFencing},
	} {
		if _, err := c.o.Normalize(c.id); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.o, err, c.want)
		}
	}
	tok := NewToken()
	for _, c := range []struct {
		id   string
		t    Token
		o    ResignOptions
		want error
	}{
		{"e", tok, ResignOptions{}, nil},
		{"e", tok, ResignOptions{HoldOff: MaxTTL}, nil},
		{"-", tok, ResignOptions{}, ErrInvalidID},
		{"e", Token{}, ResignOptions{}, ErrInvalidToken},
		{"e", tok, ResignOptions{HoldOff: -1}, ErrInvalidTTL},
		{"e", tok, ResignOptions{HoldOff: MaxTTL + 1}, ErrInvalidTTL},
	} {
		if err := c.o.Check(c.id, c.t); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c, err, c.want)
		}
	}
}
