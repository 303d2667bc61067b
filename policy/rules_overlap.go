package policy

import (
	"fmt"
	"slices"
)

// An Overlap is something about the rules that is hardly meant.
type Overlap struct {
	// Rule and Pattern are what it is about, from 0.
	Rule, Pattern int
	// By is the earlier rule that takes names away, or -1 where several do together.
	By int
	// Never says that the pattern never matches: earlier ones take all names that it is for.
	// Otherwise they take some, and neither pattern is only an exception of the other.
	Never bool
	// Text says it in one line.
	Text string
}

// Overlaps compares each pattern with those before it. What it says is certain; patterns
// that take too long to compare are left out, and complete is false then.
func (r *Rules) Overlaps() (all []Overlap, complete bool) {
	work := maxOverlapWork
	for i := range r.rules {
		for j := range r.rules[i].forms {
			all = append(all, r.overlapsOf(i, j, &work)...)
		}
	}
	return all, work > 0
}

// maxOverlapWork bounds the steps of comparing, which takes a second at most.
const maxOverlapWork = 2_000_000

// An earlier form that has names in common with another.
type rival struct {
	rule int
	f    *form
}

func (r *Rules) overlapsOf(i, j int, work *int) []Overlap {
	c := &r.rules[i]
	me := automaton(&c.forms[j])
	var rivals []rival
	var theirs [][]token
	for k := 0; k <= i; k++ {
		for l := range r.rules[k].forms {
			if r.rules[k].Kind != c.Kind || k == i && l >= j {
				continue
			}
			f := &r.rules[k].forms[l]
			a := automaton(f)
			if meet(me, a, work) {
				rivals, theirs = append(rivals, rival{k, f}), append(theirs, a)
			}
		}
	}
	subject := fmt.Sprintf("rule %d: pattern %q", i+1, c.forms[j].text)
	for n, a := range theirs {
		if within(me, [][]token{a}, work) {
			by := rivals[n]
			return []Overlap{{i, j, by.rule, true, fmt.Sprintf("%s never matches: rule %d (%q), which comes before it, takes all its names", subject, by.rule+1, by.f.text)}}
		}
	}
	if len(theirs) > 1 && within(me, theirs, work) {
		return []Overlap{{i, j, -1, true, subject + " never matches: the rules before it together take all its names"}}
	}
	var all []Overlap
	for n, a := range theirs {
		by := rivals[n]
		if by.rule == i || within(a, [][]token{me}, work) || r.same(by.rule, i) {
			continue // an exception, written before what it is an exception of; or it does not matter
		}
		all = append(all, Overlap{i, j, by.rule, false, fmt.Sprintf("%s and rule %d (%q) match some of the same names, which go to rule %d", subject, by.rule+1, by.f.text, by.rule+1)})
	}
	return all
}

// same reports whether two rules say the same of a name.
func (r *Rules) same(i, j int) bool {
	a, b := &r.rules[i], &r.rules[j]
	return a.Access == b.Access && a.Election == b.Election && (a.constant || a.Access != Fenced)
}

// border is the symbol between the parts of a name. No byte is.
const border = 256

// automaton is a form as one list of tokens, with the border between its parts.
func automaton(f *form) []token {
	var all []token
	for i, p := range f.parts {
		if i > 0 {
			all = append(all, token{kind: betweenParts})
		}
		all = append(all, p.tokens...)
	}
	return all
}

// next appends the states that follow state s on a symbol: positions in the tokens. The
// states that are reached without one are added by enter.
func next(states []int, tokens []token, s, symbol int) []int {
	if s == len(tokens) {
		return states
	}
	t := tokens[s]
	if t.kind == betweenParts || symbol == border {
		if t.kind == betweenParts && symbol == border {
			states = enter(states, tokens, s+1)
		}
		return states
	}
	if !t.takes(byte(symbol)) {
		return states
	}
	switch t.kind {
	case anyBytes:
		return enter(states, tokens, s)
	case capture:
		states = enter(states, tokens, s)
	}
	return enter(states, tokens, s+1)
}

// enter appends a state, and those that follow it on no symbol, each once.
func enter(states []int, tokens []token, s int) []int {
	if slices.Contains(states, s) {
		return states
	}
	states = append(states, s)
	if s < len(tokens) && tokens[s].kind == anyBytes {
		return enter(states, tokens, s+1)
	}
	return states
}

// symbols are all that the patterns tell apart.
func symbols(all ...[]token) []int {
	list := []int{'.', border}
	for _, tokens := range all {
		for _, t := range tokens {
			if t.kind == oneByte || t.ends {
				list = append(list, int(t.b))
			}
		}
	}
	for other := range 256 {
		if !slices.Contains(list, other) {
			list = append(list, other) // stands for all that none names
			break
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// meet reports whether some name matches both. Where it takes too much work it says no.
func meet(a, b []token, work *int) bool {
	type pair struct{ a, b int }
	seen := make(map[pair]bool)
	var todo []pair
	reach := func(as, bs []int) {
		for _, x := range as {
			for _, y := range bs {
				if p := (pair{x, y}); !seen[p] {
					seen[p] = true
					todo = append(todo, p)
				}
			}
		}
	}
	reach(enter(nil, a, 0), enter(nil, b, 0))
	all := symbols(a, b)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.a == len(a) && p.b == len(b) {
			return true
		}
		for _, s := range all {
			if *work--; *work <= 0 {
				return false
			}
			reach(next(nil, a, p.a, s), next(nil, b, p.b, s))
		}
	}
	return false
}

// within reports whether all names that match a match one of bs. Where it takes too much
// work it says no.
func within(a []token, bs [][]token, work *int) bool {
	// The patterns of bs are one automaton: their states side by side.
	type step struct {
		at   int
		then string // the states of bs
	}
	begin := make([][]int, len(bs))
	for i, b := range bs {
		begin[i] = enter(nil, b, 0)
	}
	all := symbols(append(slices.Clone(bs), a)...)
	seen := make(map[step]bool)
	type place struct {
		at   int
		them [][]int
	}
	var todo []place
	reach := func(as []int, them [][]int) {
		k := statesKey(them)
		for _, x := range as {
			if s := (step{x, k}); !seen[s] {
				seen[s] = true
				todo = append(todo, place{x, them})
			}
		}
	}
	reach(enter(nil, a, 0), begin)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if p.at == len(a) && !accepts(bs, p.them) {
			return false
		}
		for _, s := range all {
			as := next(nil, a, p.at, s)
			if len(as) == 0 {
				continue
			}
			them := make([][]int, len(bs))
			for i, b := range bs {
				for _, x := range p.them[i] {
					them[i] = next(them[i], b, x, s)
				}
				*work -= 1 + len(p.them[i])
			}
			if *work <= 0 {
				return false
			}
			reach(as, them)
		}
	}
	return true
}

// accepts reports whether one of the states ends its pattern.
func accepts(bs [][]token, them [][]int) bool {
	for i, b := range bs {
		if slices.Contains(them[i], len(b)) {
			return true
		}
	}
	return false
}

// statesKey makes a set of states fit for a map.
func statesKey(them [][]int) string {
	var k []byte
	for _, states := range them {
		slices.Sort(states)
		for _, s := range states {
			k = append(k, byte(s), byte(s>>8))
		}
		k = append(k, 0xff, 0xff)
	}
	return string(k)
}
