package redisfence_test

import (
	"slices"
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
		y := aTerm(t)
		for _, want := range [][]guard.Term{{x}, {x, y}, {y, x, y}} {
			var names []string
			for _, term := range want {
				names = append(names, redisfence.ConnName(term))
			}
			got := slices.Collect(redisfence.ParseConnName(redisfence.JoinConnNames(names...)))
			if len(got) != len(want) {
				t.Fatalf("%+v of %+v", got, want)
			}
			for i, n := range got {
				if !n.Of(want[i]) || n.Election != want[i].Election || n.Number != want[i].Number {
					t.Errorf("%+v of %+v", n, want[i])
				}
			}
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
		for n := range redisfence.ParseConnName(s) {
			if n.Number <= 0 || election.CheckID(n.Election) != nil {
				t.Errorf("%q: %+v", s, n)
			}
		}
	})
}
