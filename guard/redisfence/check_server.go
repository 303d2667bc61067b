package redisfence

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
)

// mistaken reports that a server is not of the kind that the control URL takes it for, by its
// INFO. Then there is nothing else to say of it.
func mistaken(info map[string]string, cluster bool) (guard.Problem, bool) {
	p := guard.Problem{Fatal: true}
	switch {
	case cmp.Or(info["redis_mode"], info["server_mode"]) == "sentinel":
		p.What = "the server is a sentinel"
		p.Fix = "Set upstream and control to redis+sentinel://HOST:PORT?master_name=NAME: docs/redis.md#sentinel"
	case !cluster && info["cluster_enabled"] == "1":
		p.What = "the server is part of a cluster"
		p.Fix = "Set upstream and control to redis+cluster://HOST:PORT and cluster: {ports: …}: docs/redis.md#cluster"
	case cluster && info["cluster_enabled"] == "0":
		p.What = "the server is not part of a cluster"
		p.Fix = "It is not a cluster: write host:port in upstream and redis:// in control"
	default:
		return guard.Problem{}, false
	}
	return p, true
}

// checkScripts warns where the user may not end scripts.
func checkScripts(ctx context.Context, c *redis.Client, me, at string) (ps []guard.Problem) {
	for _, name := range []string{"SCRIPT", "FUNCTION"} {
		said, err := c.Do(ctx, "ACL", "DRYRUN", me, name, "KILL").Text()
		if err == nil && said != "OK" {
			ps = append(ps, guard.Problem{What: at + "the control user cannot run " + name + " KILL: a script that does not end makes takeovers wait until somebody ends it",
				Fix: "Give the user the rights +script|kill +function|kill"})
		}
	}
	return ps
}

// refusesUser reports whether a server refused the user or the password.
func refusesUser(err error) bool {
	return !redis.HasErrorPrefix(err, "NOPERM") && (redis.IsAuthError(err) || redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH"))
}
