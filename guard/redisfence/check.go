package redisfence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
)

// Check says what would keep fencing from working. It changes nothing.
func (f *Fence) Check(ctx context.Context) []guard.Problem {
	info, err := f.client.Info(ctx, "server", "memory", "cluster").Result()
	if err != nil {
		return []guard.Problem{{Kind: guard.NoConnection, Fatal: true, What: "the control connection does not work: " + explain(err).Error(),
			Fix: "check the address, the user and the password of the control connection"}}
	}
	fields := ParseInfo(info)
	if p, is := mistaken(fields, false); is {
		return []guard.Problem{p}
	}
	var ps []guard.Problem
	fatal := func(what, fix string) { ps = append(ps, guard.Problem{Fatal: true, What: what, Fix: fix}) }
	lacks := func(what, fix string) {
		ps = append(ps, guard.Problem{Kind: guard.LacksRights, Fatal: true, What: what, Fix: fix})
	}
	warn := func(what, fix string) { ps = append(ps, guard.Problem{What: what, Fix: fix}) }

	version := fields["redis_version"] // Valkey reports the Redis version that it is compatible with
	if major, _, _ := strings.Cut(version, "."); len(major) == 1 && major < "7" {
		fatal("the server's version is "+version, "7.0 is the first that will do")
	}
	if p := fields["maxmemory_policy"]; strings.HasPrefix(p, "allkeys-") && fields["maxmemory"] != "0" {
		warn("maxmemory-policy "+p+" may evict the fence, and writes are then refused until it is raised again",
			"set a volatile-* policy or noeviction")
	}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"ROLE", func() error {
			role, err := roleOf(f.client.Do(ctx, "ROLE"))
			if err == nil && role != "master" {
				err = ErrReplica
			}
			return err
		}},
		{"GET", func() error { return ignoreNil(f.client.Get(ctx, probe).Err()) }},
		// Neither changes anything: the value never matches, and there is no such connection.
		{"EVAL", func() error { return f.client.Eval(ctx, swap, []string{probe}, "never", "never").Err() }},
		{"CLIENT LIST", func() error { return f.client.ClientList(ctx).Err() }},
		{"CLIENT KILL", func() error { return killNobody(ctx, f.client) }},
	} {
		if err := c.do(); errors.Is(err, ErrReplica) {
			fatal(err.Error(), "connect to the primary")
			return ps // it refuses more, and that is no question of rights
		} else if err != nil {
			lacks(fmt.Sprintf("the control user cannot run %s: %v", c.name, explain(err)),
				"ACL SETUSER <user> "+Rules+"; commands that fencing needs must not be renamed")
		}
	}
	// The script's SET runs only where it matters: ask the server instead, if we may.
	if me, err := f.client.Do(ctx, "ACL", "WHOAMI").Text(); err == nil {
		said, err := f.client.Do(ctx, "ACL", "DRYRUN", me, "SET", probe, "x").Text()
		if err == nil && said != "OK" {
			lacks("the control user cannot write the fence: "+said, "ACL SETUSER <user> "+Rules)
		}
		ps = append(ps, checkScripts(ctx, f.client, me, "")...)
	}
	return append(ps, f.checkNodes(ctx)...)
}

// Rules are the ACL rules of a control user that may do no more than it has to.
const Rules = "~fenceproxy:* resetchannels -@all +get +set +eval +command +role +info +ping +select +hello +auth +client|list +client|kill +acl|whoami +acl|dryrun +script|kill +function|kill"

// probe is the fence of an election that cannot be.
const probe = Prefix + "{_check}:fence"

func (f *Fence) checkNodes(ctx context.Context) []guard.Problem {
	nodes, err := f.nodes(ctx)
	if err != nil {
		return nil // said already
	}
	var ps []guard.Problem
	for i := 1; i < len(nodes); i++ { // it grows
		more, err := f.checkNode(ctx, nodes[i])
		if err == nil {
			more, err = join(nodes, more)
		}
		if err != nil {
			ps = append(ps, f.unswept(nodes[i], err))
			continue
		}
		nodes = more
	}
	return ps
}

// unswept is the problem that a node could not be swept.
func (f *Fence) unswept(addr string, err error) guard.Problem {
	what := "replica " + addr
	if slices.Contains(f.o.Nodes, addr) {
		what = "node " + addr
	}
	switch {
	case refusesUser(err):
		return guard.Problem{Fatal: true, What: fmt.Sprintf("%s refuses the control user: %v", what, err),
			Fix: "Create the user there too: Redis does not replicate users"}
	case redis.HasErrorPrefix(err, "NOPERM"):
		return guard.Problem{Kind: guard.LacksRights, Fatal: true, What: fmt.Sprintf("%s does not let the control user do its work (Redis does not replicate users and their rights): %v", what, err),
			Fix: "there: ACL SETUSER <user> " + Rules}
	}
	return guard.Problem{Fatal: true, What: fmt.Sprintf("%s cannot be swept: %v", what, err),
		Fix: "takeovers fail until it can be: " + f.listed(addr)}
}

// checkNode returns the node's own replicas.
func (f *Fence) checkNode(ctx context.Context, addr string) ([]string, error) {
	c := f.node(addr)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	if err := c.ClientList(ctx).Err(); err != nil {
		return nil, err
	}
	if err := killNobody(ctx, c); err != nil {
		return nil, err
	}
	return f.below(ctx, addr, c)
}

func killNobody(ctx context.Context, c *redis.Client) error {
	return c.ClientKillByFilter(ctx, "ID", strconv.FormatInt(math.MaxInt64, 10)).Err()
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// ParseInfo reads the fields in an answer to INFO.
func ParseInfo(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields
}
