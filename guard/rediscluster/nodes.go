package rediscluster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// A Range is a run of slots, both ends included.
type Range struct{ First, Last int }

// A Node is a server of the cluster. Its slices must not be changed.
type Node struct {
	ID string
	// Addr is its host:port; empty if no node that answered knows it.
	Addr string
	// Hostname is the name that it announces beside its address, if it does.
	Hostname string
	// Primary says that it takes itself for a primary or, where it did not answer, that
	// the others do.
	Primary bool
	// PrimaryID is the node that it replicates; empty for a primary.
	PrimaryID string
	// Failed says that the cluster has declared it failed: that more than half of the
	// primaries with slots say so.
	Failed bool
	// Answered says that it was asked for this view itself, and answered.
	Answered bool
	// Slots are those that it owns, in order.
	Slots []Range
	// Leaving are the slots that it owns and that are being moved to another node.
	Leaving []int

	epoch uint64
}

// ErrReply means that a node's answer was not of the form that servers give.
var ErrReply = errors.New("CLUSTER NODES: the reply is of another form")

// A said is one line of a node's answer to CLUSTER NODES.
type said struct {
	Node
	myself, fail bool
}

// parseNodes reads a node's answer to CLUSTER NODES. Nodes that are just being joined or
// have a name that is not their own yet are left out. host is where the asked node was
// reached: it may not know its own address yet.
func parseNodes(text, host string) ([]said, error) {
	var all []said
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		s, err := parseNode(line, host)
		if err != nil {
			return nil, err
		}
		if s.ID != "" {
			all = append(all, s)
		}
	}
	if !slices.ContainsFunc(all, func(s said) bool { return s.myself }) {
		return nil, fmt.Errorf("%w: the node itself is missing", ErrReply)
	}
	return all, nil
}

// parseNode reads a line: id, ip:port@busport[,hostname[,…]], flags, primary, two times,
// epoch, link and slots. An empty ID means that the line counts for nothing.
func parseNode(line, host string) (said, error) {
	f := strings.Fields(line)
	if len(f) < 8 {
		return said{}, fmt.Errorf("%w: a line of %d fields", ErrReply, len(f))
	}
	s := said{Node: Node{ID: f[0]}}
	for flag := range strings.SplitSeq(f[2], ",") {
		switch flag {
		case "handshake":
			return said{}, nil
		case "myself":
			s.myself = true
		case "master":
			s.Primary = true
		case "fail":
			s.fail = true
		}
	}
	if f[3] != "-" && !s.Primary {
		s.PrimaryID = f[3]
	}
	addr, names, _ := strings.Cut(f[1], ",")
	name, _, _ := strings.Cut(names, ",")
	if !strings.Contains(name, "=") { // or it is the first of the auxiliary fields
		s.Hostname = name
	}
	addr, _, _ = strings.Cut(addr, "@")
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return said{}, fmt.Errorf("%w: an address without a port", ErrReply)
	}
	ip, port := strings.Trim(addr[:colon], "[]"), addr[colon+1:]
	if ip == "" && s.myself {
		ip = host
	}
	if ip != "" && ip != "?" && port != "0" {
		s.Addr = net.JoinHostPort(ip, port)
	}
	var err error
	if s.epoch, err = strconv.ParseUint(f[6], 10, 64); err != nil {
		return said{}, fmt.Errorf("%w: an epoch", ErrReply)
	}
	for _, word := range f[8:] {
		if moving, ok := strings.CutPrefix(word, "["); ok {
			// [slot->-node]: on its way to that node; [slot-<-node]: on its way from it.
			slot, _, out := strings.Cut(moving, "->-")
			if n, err := strconv.Atoi(slot); out && err == nil {
				s.Leaving = append(s.Leaving, n)
			}
			continue
		}
		first, last, run := strings.Cut(word, "-")
		if !run {
			last = first
		}
		r := Range{}
		r.First, err = strconv.Atoi(first)
		if err == nil {
			r.Last, err = strconv.Atoi(last)
		}
		if err != nil || r.First < 0 || r.First > r.Last || r.Last >= Slots {
			return said{}, fmt.Errorf("%w: slots", ErrReply)
		}
		s.Slots = append(s.Slots, r)
	}
	return s, nil
}
