package redisfence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// Check says what would keep fencing from working. It changes nothing.
func (f *ClusterFence) Check(ctx context.Context) []guard.Problem {
	if err := f.top.Refresh(ctx); err != nil {
		return []guard.Problem{f.unreachable(ctx, err)}
	}
	v := f.top.View()
	var ps []guard.Problem
	slots := 0
	for _, n := range v.Nodes() {
		for _, r := range n.Slots {
			slots += r.Last - r.First + 1
		}
		switch {
		case n.Answered:
			ps = append(ps, f.checkNode(ctx, n)...)
		case !declared(v, n):
			ps = append(ps, unheard(n, v.Failure(n.Addr)))
		}
	}
	if slots < rediscluster.Slots {
		ps = append(ps, guard.Problem{What: fmt.Sprintf("%d slots have no owner", rediscluster.Slots-slots),
			Fix: "elections whose fence is in such a slot cannot be fenced: redis-cli --cluster fix"})
	}
	return ps
}

// unreachable is the problem that no node says which nodes there are.
func (f *ClusterFence) unreachable(ctx context.Context, err error) guard.Problem {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return guard.Problem{Kind: guard.LacksRights, Fatal: true, What: "the control user cannot run CLUSTER NODES: " + explain(err).Error(),
			Fix: "on each node: ACL SETUSER <user> " + ClusterRules}
	}
	if isReply(err) && !refusesUser(err) {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
		defer cancel()
		for _, addr := range f.top.Seeds() {
			info, err := f.top.Client(addr).Info(ctx, "server", "cluster").Result()
			if p, is := mistaken(ParseInfo(info), true); err == nil && is {
				p.What = addr + ": " + p.What
				return p
			}
		}
	}
	return guard.Problem{Fatal: true, What: "the control connections do not work: " + explain(err).Error(),
		Fix: "check the addresses, the user and the password of the control connection, and that the servers are in cluster mode"}
}

// unheard is the problem that a node was not heard of itself.
func unheard(n rediscluster.Node, why error) guard.Problem {
	p := guard.Problem{Fatal: true, What: fmt.Sprintf("node %s at %s does not answer the control connection", n.ID, n.Addr),
		Fix: "takeovers fail until it can be swept: make it reachable at the address that it announces"}
	if why != nil {
		p.What += ": " + why.Error()
	}
	var lost net.Error
	switch {
	case refusesUser(why):
		p.What = fmt.Sprintf("%s refuses the control user: %v", n.Addr, why)
		p.Fix = "Create the user there too: each node keeps its own users"
	case redis.HasErrorPrefix(why, "NOPERM"):
		p.Kind = guard.LacksRights
		p.What = fmt.Sprintf("%s: the control user cannot run CLUSTER NODES: %v", n.Addr, why)
		p.Fix = "on each node: ACL SETUSER <user> " + ClusterRules
	case errors.As(why, &lost): // refused, or no answer in time
		p.Fix += ", or CLUSTER FORGET it if it is gone for good"
	}
	return p
}

// checkNode looks at one node.
func (f *ClusterFence) checkNode(ctx context.Context, n rediscluster.Node) (ps []guard.Problem) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	c := f.top.Client(n.Addr)
	info, err := c.Info(ctx, "server", "memory").Result()
	fields := ParseInfo(info)
	if major, _, _ := strings.Cut(fields["redis_version"], "."); err == nil && len(major) == 1 && major < "7" {
		ps = append(ps, guard.Problem{Fatal: true, What: n.Addr + ": the server's version is " + fields["redis_version"], Fix: "7.0 is the first that will do"})
	}
	if p := fields["maxmemory_policy"]; strings.HasPrefix(p, "allkeys-") && fields["maxmemory"] != "0" {
		ps = append(ps, guard.Problem{What: n.Addr + ": maxmemory-policy " + p + " may evict the fence, and writes are then refused until it is raised again",
			Fix: "set a volatile-* policy or noeviction"})
	}
	lacks := func(what string) {
		ps = append(ps, guard.Problem{Kind: guard.LacksRights, Fatal: true, What: n.Addr + ": the control user cannot " + what,
			Fix: "on each node: ACL SETUSER <user> " + ClusterRules + "; commands that fencing needs must not be renamed"})
	}
	checks := []struct {
		name string
		do   func() error
	}{
		{"CLUSTER MYID", func() error { return c.Do(ctx, "CLUSTER", "MYID").Err() }},
		{"CLIENT LIST", func() error { return c.ClientList(ctx).Err() }},
		{"CLIENT KILL", func() error { return killNobody(ctx, c) }},
	}
	if slot, ok := copySlot(n); ok && n.Primary {
		// None changes anything: there is no such election, and the value never matches.
		key := copyKey("_check", slot)
		checks = append(checks, []struct {
			name string
			do   func() error
		}{
			{"GET", func() error { return ignoreNil(c.Get(ctx, key).Err()) }},
			{"SMEMBERS", func() error { return c.SMembers(ctx, key).Err() }},
			{"SMISMEMBER", func() error { return c.SMIsMember(ctx, key, "x").Err() }},
			{"EVAL", func() error { return c.Eval(ctx, swap, []string{key}, "never", "never").Err() }},
		}...)
	}
	for _, k := range checks {
		if err := k.do(); err != nil {
			lacks(fmt.Sprintf("run %s: %v", k.name, explain(err)))
		}
	}
	// What scripts run, and what only a redirection brings, the server is asked about.
	if me, err := c.Do(ctx, "ACL", "WHOAMI").Text(); err == nil {
		for _, dry := range [][]any{{"SET", "x"}, {"SADD", "x"}, {"SREM", "x"}} {
			said, err := c.Do(ctx, "ACL", "DRYRUN", me, dry[0], probe, dry[1]).Text()
			if err == nil && said != "OK" {
				lacks("write the fence: " + said)
			}
		}
		if said, err := c.Do(ctx, "ACL", "DRYRUN", me, "ASKING").Text(); err == nil && said != "OK" {
			lacks("follow a slot that moves: " + said)
		}
		ps = append(ps, checkScripts(ctx, c, me, n.Addr+": ")...)
	}
	return ps
}
