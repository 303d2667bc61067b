package electiontest

import (
	"testing"
	"time"
)

// The observer of the races sees what it is there to see.
func TestLedger(t *testing.T) {
	origin := time.Now()
	at := func(ms int) time.Time { return origin.Add(time.Duration(ms) * time.Millisecond) }
	s := func(who string, number int64, from, end int) stint {
		return stint{who: who, number: number, asked: at(from - 1), from: at(from), end: at(end)}
	}
	for name, c := range map[string]struct {
		stints    []stint
		deletions []deletion
		found     int
	}{
		"InTurn":               {[]stint{s("a", 1, 10, 20), s("b", 2, 20, 30), s("a", 3, 31, 40)}, nil, 0},
		"NotedLate":            {[]stint{s("b", 2, 20, 30), s("a", 1, 10, 20)}, nil, 0},
		"Overlap":              {[]stint{s("a", 1, 10, 21), s("b", 2, 20, 30)}, nil, 1},
		"OverlapOfOneWhoWaits": {[]stint{s("a", 1, 10, 20), s("a", 1, 15, 40), s("b", 2, 30, 50)}, nil, 1},
		"OverlapOfALongerOne":  {[]stint{s("a", 1, 10, 40), s("a", 1, 15, 20), s("b", 2, 30, 50)}, nil, 1},
		"SameNumber":           {[]stint{s("a", 1, 10, 20), s("b", 1, 20, 30)}, nil, 1},
		"Falls":                {[]stint{s("a", 2, 10, 20), s("b", 1, 20, 30)}, nil, 1},
		"FallsOnOneself":       {[]stint{s("a", 2, 10, 20), s("a", 1, 20, 30)}, nil, 1},
		"BothAtOnce":           {[]stint{s("a", 2, 10, 20), s("b", 1, 15, 30)}, nil, 2},
		"Deleted":              {[]stint{s("a", 1, 10, 30), s("b", 2, 20, 30)}, []deletion{{at(15), at(16)}}, 0},
		"DeletedLater":         {[]stint{s("a", 1, 10, 30), s("b", 2, 20, 30)}, []deletion{{at(25), at(26)}}, 1},
		"DeletedBefore":        {[]stint{s("a", 1, 10, 30), s("b", 2, 20, 30)}, []deletion{{at(5), at(6)}}, 1},
		"DeletedAndFalls":      {[]stint{s("a", 2, 10, 30), s("b", 1, 20, 30)}, []deletion{{at(15), at(16)}}, 1},
	} {
		l := &ledger{deletions: c.deletions}
		for _, x := range c.stints {
			l.note(x)
		}
		if found := l.violations(); len(found) != c.found {
			t.Errorf("%s: %q, want %d", name, found, c.found)
		}
	}
}
