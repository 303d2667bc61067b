package electiontest

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/election"
)

// A model is one election, as the contract describes it, without time.
type model struct {
	holder int // an index into candidates; -1 for nobody
	owner  string
	number int64 // the last number granted
}

const candidates = 3

// In any order of calls by three candidates, every answer is the model's.
func (s suite) model(t *testing.T) {
	t.Parallel()
	a, b := s.pair(t)
	rapid.Check(t, func(r *rapid.T) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		u := user{r, ctx, a, fresh()}
		var tokens [candidates]election.Token
		for i := range tokens {
			tokens[i] = election.NewToken()
		}
		m := model{holder: -1}
		pick := func() (int, user) {
			if rapid.Bool().Draw(r, "second handle") {
				return rapid.IntRange(0, candidates-1).Draw(r, "candidate"), u.with(b)
			}
			return rapid.IntRange(0, candidates-1).Draw(r, "candidate"), u
		}
		r.Repeat(map[string]func(*rapid.T){
			"acquire": func(r *rapid.T) {
				i, u := pick()
				o := election.AcquireOptions{
					Token: tokens[i], Owner: rapid.StringMatching("[a-z]{1,3}").Draw(r, "owner"),
					MinFencing: rapid.Int64Range(0, 1<<62).Draw(r, "floor"),
				}
				g := u.acquire(o)
				switch m.holder {
				case -1:
					if g.Status != election.Acquired || g.Number <= m.number || g.Number < o.MinFencing || g.Owner != o.Owner {
						r.Fatalf("%d acquires from %+v: %+v", i, m, g)
					}
					m = model{i, g.Owner, g.Number}
				case i:
					if g.Status != election.Acquired || g.Number != m.number || g.Owner != m.owner {
						r.Fatalf("%d acquires again from %+v: %+v", i, m, g)
					}
				default:
					if g.Status != election.Busy || g.Number != m.number || g.Owner != m.owner {
						r.Fatalf("%d acquires from %+v: %+v", i, m, g)
					}
				}
			},
			"renew": func(r *rapid.T) {
				i, u := pick()
				if m.holder != i {
					u.renew(tokens[i], election.Lost)
				} else if g := u.renew(tokens[i], election.Renewed); g.Number != m.number {
					r.Fatalf("%d renews from %+v: %+v", i, m, g)
				}
			},
			"resign": func(r *rapid.T) {
				i, u := pick()
				if m.holder != i {
					u.resign(tokens[i], election.ResignOptions{}, election.NotOwner)
					return
				}
				u.resign(tokens[i], election.ResignOptions{}, election.Released)
				m.holder, m.owner = -1, ""
			},
			"validate": func(r *rapid.T) {
				i, u := pick()
				switch m.holder {
				case -1:
					u.standing(tokens[i], election.StandingVacant, 0)
				case i:
					u.standing(tokens[i], election.StandingCurrent, m.number)
				default:
					u.standing(tokens[i], election.StandingStale, m.number)
				}
			},
			"": func(r *rapid.T) { // after each step
				st := u.status()
				if st.Number != m.number || st.Owner != m.owner || (st.Status == election.Held) != (m.holder >= 0) {
					r.Fatalf("Status %+v, model %+v", st, m)
				}
			},
		})
	})
}
