package kubernetes

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
)

// anID draws an election id.
func anID() *rapid.Generator[string] {
	return rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}`).Filter(func(s string) bool { return election.CheckID(s) == nil })
}

// Every id has a name that the API server takes, and no two ids have one name.
func TestNames(t *testing.T) {
	for id, want := range map[string]string{
		"jobs":                  "jobs",
		"0":                     "0",
		strings.Repeat("a", 63): strings.Repeat("a", 63),
		"jobs/Nightly":          "jobs-nightly.",
		"a.b":                   "a-b.",
		"a-":                    "a.",
		strings.Repeat("a", 64): strings.Repeat("a", 63) + ".",
	} {
		got := leaseName(id)
		if i := strings.Index(want, "."); i >= 0 {
			want, got = want[:i+1], got[:strings.Index(got, ".")+1]
		}
		if got != want {
			t.Errorf("%q: %q, want %q", id, leaseName(id), want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := anID().Draw(t, "a"), anID().Draw(t, "b")
		if bad := validation.IsDNS1123Subdomain(leaseName(a)); len(bad) > 0 {
			t.Fatalf("%q: %q: %v", a, leaseName(a), bad)
		}
		if a != b && leaseName(a) == leaseName(b) {
			t.Fatalf("%q and %q: %q", a, b, leaseName(a))
		}
		// A name as an id is another election's.
		if name := leaseName(a); name != a && leaseName(name) == name {
			t.Fatalf("%q passes for %q", name, a)
		}
	})
}

// What is written is read back, whatever was there before.
func TestRecordsKeep(t *testing.T) {
	now := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		id := anID().Draw(t, "id")
		var l *coordinationv1.Lease
		for range rapid.IntRange(1, 5).Draw(t, "writes") {
			r := record{number: rapid.Int64Range(1, math.MaxInt64).Draw(t, "number"), write: "w"}
			if rapid.Bool().Draw(t, "held") {
				r.held = true
				r.owner = rapid.StringMatching(`[!-~]{1,128}`).Draw(t, "owner")
				r.digest = election.NewToken().Digest()
				r.ttl = time.Duration(rapid.Int64Range(100, election.MaxTTL.Milliseconds()).Draw(t, "ms")) * time.Millisecond
			}
			l = encode(l, leaseName(id), id, r, now)
			if got, err := decode(l, id); err != nil || got != r {
				t.Fatalf("%+v became %+v, %v", r, got, err)
			}
			if d := l.Spec.LeaseDurationSeconds; r.held && (*d < 1 || time.Duration(*d)*time.Second < r.ttl) {
				t.Fatalf("%d seconds for %v", *d, r.ttl)
			}
			if (l.Spec.HolderIdentity != nil) != r.held {
				t.Fatalf("holder %v", l.Spec.HolderIdentity)
			}
		}
	})
}

// Transitions count holders, not renewals, and stop at their largest.
func TestTransitions(t *testing.T) {
	now := time.Now()
	r := record{number: 1, held: true, owner: "a", ttl: time.Second}
	l := encode(nil, "e", "e", r, now)
	if l.Spec.LeaseTransitions != nil || !l.Spec.AcquireTime.Time.Equal(l.Spec.RenewTime.Time) {
		t.Errorf("first: %+v", l.Spec)
	}
	l = encode(l, "e", "e", r, now.Add(time.Second))
	if l.Spec.LeaseTransitions != nil || l.Spec.AcquireTime.Time.Equal(l.Spec.RenewTime.Time) {
		t.Errorf("renewed: %+v", l.Spec)
	}
	r.number = 2
	if l = encode(l, "e", "e", r, now); *l.Spec.LeaseTransitions != 1 {
		t.Errorf("second: %+v", l.Spec)
	}
	largest := int32(math.MaxInt32)
	l.Spec.LeaseTransitions = &largest
	r.number = 3
	if l = encode(l, "e", "e", r, now); *l.Spec.LeaseTransitions != largest {
		t.Errorf("after the largest: %+v", l.Spec)
	}
}

// E15: the API server takes times with six digits of a fraction alone, also when the
// fraction is zero.
func TestTimesHaveSixDigits(t *testing.T) {
	for _, at := range []time.Time{time.Unix(1e9, 0), time.Unix(1e9, 1), time.Unix(1e9, 999_999_999), time.Now().Local()} {
		l := encode(nil, "e", "e", record{number: 1, held: true, owner: "a", ttl: time.Second}, at)
		b, err := json.Marshal(l)
		if err != nil || len(regexp.MustCompile(`Time":"[0-9T:-]{19}\.\d{6}Z"`).FindAll(b, -1)) != 2 {
			t.Errorf("%v: %s, %v", at, b, err)
		}
	}
}

// What is not a record of ours is none.
func TestDecodeRefuses(t *testing.T) {
	id := "e"
	for name, spoil := range map[string]func(*coordinationv1.Lease){
		"no annotations":   func(l *coordinationv1.Lease) { l.Annotations = nil },
		"no election":      func(l *coordinationv1.Lease) { delete(l.Annotations, electionNote) },
		"another election": func(l *coordinationv1.Lease) { l.Annotations[electionNote] = "f" },
		"no number":        func(l *coordinationv1.Lease) { delete(l.Annotations, numberNote) },
		"number 0":         func(l *coordinationv1.Lease) { l.Annotations[numberNote] = "0" },
		"number -1":        func(l *coordinationv1.Lease) { l.Annotations[numberNote] = "-1" },
		"number too high":  func(l *coordinationv1.Lease) { l.Annotations[numberNote] = "9223372036854775808" },
		"a short digest":   func(l *coordinationv1.Lease) { l.Annotations[digestNote] = "00" },
		"an empty digest":  func(l *coordinationv1.Lease) { l.Annotations[digestNote] = "" },
		"no TTL":           func(l *coordinationv1.Lease) { delete(l.Annotations, ttlNote) },
		"TTL 0":            func(l *coordinationv1.Lease) { l.Annotations[ttlNote] = "0" },
		"TTL too long":     func(l *coordinationv1.Lease) { l.Annotations[ttlNote] = "86400001" },
		"TTL overflows":    func(l *coordinationv1.Lease) { l.Annotations[ttlNote] = "9223372036854775807" },
		"no holder":        func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"an odd holder":    func(l *coordinationv1.Lease) { s := "a b"; l.Spec.HolderIdentity = &s },
	} {
		l := encode(nil, "e", id, record{number: 1, held: true, owner: "a", ttl: time.Second}, time.Now())
		if _, err := decode(l, id); err != nil {
			t.Fatal(err)
		}
		spoil(l)
		if r, err := decode(l, id); err == nil || r != (record{}) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
