package redissentinel

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
)

// ask asks every sentinel for the primary. It returns the newest word, by the epoch of the
// configuration, and how many answered.
func (p *Primary) ask(ctx context.Context) (newest reign, answers int) {
	told := make([]reign, len(p.sentinels))
	p.each(ctx, func(ctx context.Context, i int) error {
		m, err := p.sentinels[i].Master(ctx, p.o.Master).Result()
		if err != nil {
			return err
		}
		epoch, err := strconv.ParseInt(m["config-epoch"], 10, 64)
		if err != nil || m["ip"] == "" || m["port"] == "" {
			return fmt.Errorf("a sentinel's answer is not understood")
		}
		told[i] = reign{net.JoinHostPort(m["ip"], m["port"]), epoch}
		return nil
	})
	return newestOf(told)
}

// newestOf is the newest of what sentinels said, of which those that did not answer are zero.
func newestOf(told []reign) (newest reign, answers int) {
	for _, r := range told {
		if r.addr == "" {
			continue
		}
		answers++
		if newest.addr == "" || r.epoch > newest.epoch {
			newest = r
		}
	}
	return newest, answers
}

// follows reports whether what so many of the sentinels say is to be believed after now. An
// older word than now's is that of sentinels which were cut off during the last failover, unless
// most of them say it: then they were set up anew.
func (r reign) follows(now reign, answers, sentinels int) bool {
	return r.addr != "" && (r.epoch >= now.epoch || answers > sentinels/2)
}

// A Node is a server that sentinels know to replicate from the primary, or to be about to.
type Node struct {
	Addr string
	// Down says that every sentinel which answered holds it to be out of reach.
	Down bool
}

// Replicas returns what the sentinels know beside the primary; an error if none answers.
func (p *Primary) Replicas(ctx context.Context) ([]Node, error) {
	told := make([][]Node, len(p.sentinels))
	errs := p.each(ctx, func(ctx context.Context, i int) error {
		list, err := p.sentinels[i].Replicas(ctx, p.o.Master).Result()
		if err != nil {
			return err
		}
		told[i] = make([]Node, 0, len(list))
		for _, m := range list {
			if m["ip"] == "" || m["port"] == "" || m["port"] == "0" {
				continue
			}
			told[i] = append(told[i], Node{net.JoinHostPort(m["ip"], m["port"]), down(m["flags"])})
		}
		return nil
	})
	var all []Node
	heard := false
	for _, list := range told {
		heard = heard || list != nil
		for _, n := range list {
			all = add(all, n)
		}
	}
	if !heard {
		return nil, fmt.Errorf("asking the sentinels for the replicas: %w", firstOf(errs))
	}
	return all, nil
}

// add merges what one sentinel says of a node.
func add(all []Node, n Node) []Node {
	for i := range all {
		if all[i].Addr == n.Addr {
			all[i].Down = all[i].Down && n.Down
			return all
		}
	}
	return append(all, n)
}

// down reads a sentinel's flags of a server.
func down(flags string) bool {
	for f := range strings.SplitSeq(flags, ",") {
		if f == "s_down" || f == "o_down" {
			return true
		}
	}
	return false
}

// each asks every sentinel at once and returns their errors.
func (p *Primary) each(ctx context.Context, ask func(ctx context.Context, i int) error) []error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	errs := make([]error, len(p.sentinels))
	var wg sync.WaitGroup
	for i := range p.sentinels {
		wg.Go(func() { errs[i] = ask(ctx, i) })
	}
	wg.Wait()
	return errs
}

func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ErrUnknown
}
