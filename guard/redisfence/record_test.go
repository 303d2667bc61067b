package redisfence_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
)

func aTerm(t *rapid.T) guard.Term {
	return guard.Term{
		Election: rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}`).Draw(t, "election"),
		Number:   rapid.Int64Range(1, 1<<63-1).Draw(t, "number"),
		Digest:   election.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest")),
	}
}

func TestRecordAndNameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := aTerm(t)
		r := guard.Record{Highest: x.Number, Holder: x.Digest, State: guard.State(rapid.IntRange(1, 2).Draw(t, "state")),
			Raise: guard.RaiseID(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "raise"))}
		if got, err := redisfence.Decode(redisfence.Encode(r)); err != nil || got != r {
			t.Errorf("%+v, %v; want %+v", got, err, r)
		}
		n, ok := redisfence.ParseConnName(redisfence.ConnName(x))
		if !ok || !n.Of(x) || n.Election != x.Election || n.Number != x.Number {
			t.Errorf("%+v, %v of %+v", n, ok, x)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("")
	f.Add("7:x")
	f.Add(redisfence.Encode(guard.Record{Highest: 7, State: guard.Raised}))
	f.Fuzz(func(t *testing.T, s string) {
		r, err := redisfence.Decode(s)
		if err == nil && redisfence.Encode(r) != s {
			t.Errorf("%q is not how %+v is written", s, r)
		}
		if err != nil && r != (guard.Record{}) {
			t.Errorf("an error and %+v", r)
		}
		if n, ok := redisfence.ParseConnName(s); ok && (n.Number <= 0 || election.CheckID(n.Election) != nil) {
			t.Errorf("%q: %+v", s, n)
		}
	})
}
