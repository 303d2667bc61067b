package rediscluster

import (
	"cmp"
	"net"
	"reflect"
	"slices"
)

// A View is what the nodes that answered said of the cluster. It does not change.
type View struct {
	nodes  []Node
	owners []int16 // by slot: index of nodes, or -1
	byAddr map[string]int
	byID   map[string]int
	// failures are why nodes did not answer, by the address that was asked.
	failures map[string]error
}

// Nodes are all nodes that any node knows, by address. The slice must not be changed.
func (v *View) Nodes() []Node { return v.nodes }

// Owner is the primary of a slot; false if there is none, or no such slot.
func (v *View) Owner(slot int) (Node, bool) {
	if slot < 0 || slot >= len(v.owners) || v.owners[slot] < 0 {
		return Node{}, false
	}
	return v.nodes[v.owners[slot]], true
}

// ByAddr is the node with an address, of which the host may also be the hostname that it
// announces.
func (v *View) ByAddr(addr string) (Node, bool) {
	if i, ok := v.byAddr[addr]; ok {
		return v.nodes[i], true
	}
	return Node{}, false
}

// ByID is the node with an id.
func (v *View) ByID(id string) (Node, bool) {
	if i, ok := v.byID[id]; ok {
		return v.nodes[i], true
	}
	return Node{}, false
}

// Failure is why the node at an address did not answer; nil if it did, or was not asked.
func (v *View) Failure(addr string) error { return v.failures[addr] }

// same reports whether two views say the same.
func (v *View) same(w *View) bool {
	return v != nil && w != nil && reflect.DeepEqual(v.nodes, w.nodes)
}

// merge makes a view of the answers of several nodes, by the asked node. What a node says
// of itself counts for more than what the others say of it; of two nodes that claim a
// slot, the one with the higher epoch has it, as in the cluster itself.
func merge(answers [][]said) *View {
	best := make(map[string]said)
	for _, answer := range answers {
		for _, s := range answer {
			b, known := best[s.ID]
			switch {
			case !known, s.myself && !b.myself, s.myself == b.myself && s.epoch > b.epoch,
				s.myself == b.myself && b.Addr == "":
				best[s.ID] = s
			}
		}
	}
	v := &View{owners: make([]int16, Slots), byAddr: make(map[string]int), byID: make(map[string]int)}
	for _, s := range best {
		n := s.Node
		n.Answered = s.myself
		v.nodes = append(v.nodes, n)
	}
	slices.SortFunc(v.nodes, func(a, b Node) int { return cmp.Or(cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.ID, b.ID)) })
	v.own()
	v.declare(answers)
	for i, n := range v.nodes {
		v.byID[n.ID] = i
		_, port, err := net.SplitHostPort(n.Addr)
		if err != nil {
			continue
		}
		if _, taken := v.byAddr[n.Addr]; !taken || n.Answered {
			v.byAddr[n.Addr] = i
		}
		if n.Hostname != "" {
			v.byAddr[net.JoinHostPort(n.Hostname, port)] = i
		}
	}
	return v
}

// own gives each slot one owner, and each node the slots that it owns.
func (v *View) own() {
	for slot := range v.owners {
		v.owners[slot] = -1
	}
	for i, n := range v.nodes {
		if !n.Primary {
			continue
		}
		for _, r := range n.Slots {
			for slot := r.First; slot <= r.Last; slot++ {
				if o := v.owners[slot]; o < 0 || v.nodes[o].epoch < n.epoch {
					v.owners[slot] = int16(i)
				}
			}
		}
	}
	for i := range v.nodes {
		v.nodes[i].Slots = nil
	}
	for slot := 0; slot < Slots; {
		o := v.owners[slot]
		first := slot
		for slot < Slots && v.owners[slot] == o {
			slot++
		}
		if o >= 0 {
			v.nodes[o].Slots = append(v.nodes[o].Slots, Range{first, slot - 1})
		}
	}
}

// declare sets Failed: more than half of the primaries with slots say it of a node.
func (v *View) declare(answers [][]said) {
	voters, fails := 0, make(map[string]int)
	votes := make(map[string]bool)
	for _, n := range v.nodes {
		if n.Primary && len(n.Slots) > 0 {
			voters++
			votes[n.ID] = true
		}
	}
	counted := make(map[string]bool) // a node may have been asked by two addresses
	for _, answer := range answers {
		me := answer[slices.IndexFunc(answer, func(s said) bool { return s.myself })].ID
		if !votes[me] || counted[me] {
			continue
		}
		counted[me] = true
		for _, s := range answer {
			if s.fail {
				fails[s.ID]++
			}
		}
	}
	for i := range v.nodes {
		v.nodes[i].Failed = fails[v.nodes[i].ID] > voters/2
	}
}
