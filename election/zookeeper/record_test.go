package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
)

// Safety: whatever the delays of requests and answers are, nobody takes a lease for run
// out before its holder does, who counts from before it asked.
func TestLeaseOutlastsItsHoldersTrust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		origin := time.Now()
		at := func(ms int) time.Time { return origin.Add(time.Duration(ms) * time.Millisecond) }
		delay := rapid.IntRange(0, 400)
		r := record{Number: 1, State: stateHeld, Owner: "a", Digest: election.NewToken().Digest().String(), TTL: 300}

		// The holder's writes: asked, then carried out. The last one counts.
		asked, done := []int{0}, []int{delay.Draw(t, "first")}
		for range rapid.IntRange(0, 6).Draw(t, "renewals") {
			ask := done[len(done)-1] + delay.Draw(t, "pause")
			asked, done = append(asked, ask), append(done, ask+delay.Draw(t, "under way"))
		}
		// An observer's reads: asked, answered by the server, received; and, if the holder's
		// handle is the observer's too, the writes it learns of on their way.
		var s sights
		shared := rapid.Bool().Draw(t, "shared")
		now, noted := 0, -1
		for range rapid.IntRange(1, 40).Draw(t, "reads") {
			now += delay.Draw(t, "pause")
			read := now + delay.Draw(t, "there")
			got := read + delay.Draw(t, "back")
			i := -1 // the record that the server has at the time
			for i+1 < len(done) && done[i+1] <= read {
				i++
			}
			for shared && noted < i {
				noted++
				w := r
				w.Renewals = int64(noted)
				s.wrote("e", w, at(asked[noted]))
			}
			now = got
			if i < 0 {
				s.forget("e")
				continue
			}
			w := r
			w.Renewals = int64(i)
			if left := s.see("e", w, at(got)); left <= 0 && at(got).Before(at(asked[i]).Add(w.ttl())) {
				t.Fatalf("write %d, asked at %d ms: run out at %d ms", i, asked[i], got)
			}
		}
	})
}

// Elections that are forgotten to save memory make observers wait, and nothing else.
func TestSightsAreBounded(t *testing.T) {
	var s sights
	now := time.Now()
	r := record{State: stateHeld, TTL: 1000}
	for i := range 3 * maxSights {
		r.Number = int64(i + 1)
		now = now.Add(time.Millisecond)
		if left := s.see(fmt.Sprint(i), r, now); left != r.ttl() {
			t.Fatalf("%v left at the first sight", left)
		}
	}
	if n := len(s.byID); n > maxSights {
		t.Errorf("%d sights", n)
	}
	if left := s.see(fmt.Sprint(3*maxSights-1), r, now.Add(400*time.Millisecond)); left != 600*time.Millisecond {
		t.Errorf("%v left", left)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := record{
			Number: rapid.Int64Min(1).Draw(t, "number"), State: rapid.SampledFrom([]string{stateHeld, stateReleased}).Draw(t, "state"),
			Owner: rapid.StringMatching(`[!-~]{1,128}`).Draw(t, "owner"), Digest: election.NewToken().Digest().String(),
			TTL: rapid.Int64Range(100, 86400000).Draw(t, "ttl"), Session: "0x1", Renewals: rapid.Int64().Draw(t, "renewals"),
		}
		if back, err := decode(r.encode()); err != nil || back != r {
			t.Fatalf("%+v, %v, was %+v", back, err, r)
		}
	})
}
