package resp

import (
	"bytes"
	"strconv"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// A clusterMap is what the core knows of the cluster of which its server is a node. Its
// addresses are the proxy's own, at which this client reaches the nodes.
type clusterMap interface {
	// id is the node id of the server.
	id() string
	// primary reports whether the server is one, as far as is known.
	primary() bool
	// node returns the address of the node with that id.
	node(id []byte) (address, bool)
	// redirected returns the address of the node that the server names in a redirection
	// of a slot; moved says that the slot is there for good. An empty host is the server's own.
	redirected(slot int, moved bool, host, port string) (address, bool)
	// owner returns the address of the primary that has the slot, unless that is the
	// server itself.
	owner(slot int) (address, bool)
	// shardSlot returns a slot of the primary that the server replicates.
	shardSlot() (int, bool)
}

// An address is where the proxy is connected to.
type address struct {
	host string
	port int
	// unserved, in the place of an address, is the id of a node that the proxy has no port for.
	unserved string
}

// String is the form in redirections: an IPv6 address has no brackets.
func (a address) String() string { return a.host + ":" + strconv.Itoa(a.port) }

// redirection replaces the node's address in MOVED and ASK by the proxy's.
//
// INVARIANT: no address of a node gets to the client in a redirection. A node that the
// proxy does not know is one to ask for again; one that has no port is named by its id.
func (c *core) redirection(line []byte) []byte {
	kind, rest, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{' '})
	if k := string(kind); k != "-MOVED" && k != "-ASK" {
		return line
	}
	if c.cfg.cluster == nil {
		if c.cfg.maybe {
			return []byte(notSetUp)
		}
		return line // a script's own words
	}
	number, addr, _ := bytes.Cut(rest, []byte{' '})
	slot, ok := parseLen(number)
	colon := bytes.LastIndexByte(addr, ':')
	if !ok || slot < 0 || slot >= rediscluster.Slots || colon < 0 {
		return []byte(tryLater)
	}
	to, ok := c.cfg.cluster.redirected(int(slot), string(kind) == "-MOVED", string(addr[:colon]), string(addr[colon+1:]))
	if !ok {
		return []byte(to.elsewhere())
	}
	return redirect(string(kind), int(slot), to)
}

func redirect(kind string, slot int, to address) []byte {
	return []byte(kind + " " + strconv.Itoa(slot) + " " + to.String() + "\r\n")
}

// tryLater is the answer where a client would have to be sent to a node that the proxy does
// not know yet.
const tryLater = "-TRYAGAIN fenceproxy does not know yet where this slot is. Try again.\r\n"

// elsewhere is the answer where a client cannot be sent on.
func (a address) elsewhere() string {
	if a.unserved == "" {
		return tryLater
	}
	return errorLine(wordDown, "node "+a.unserved+" of the cluster is not served by fenceproxy: add ports to cluster.ports, or free them.")
}

// sendAway deals with a write of a session whose bind was refused because its node is a
// replica: the client is sent to the slot's primary, as the node itself would do, and so
// learns of it.
//
// INVARIANT: the write is not passed to the node, which may be promoted meanwhile.
func (c *core) sendAway(cmd *command, raw []byte, s *scanner) {
	c.retried = false
	switch key, keyed := firstKey(cmd, raw, s); {
	case key != nil:
		c.substituteFor(codeMoved, strconv.Itoa(rediscluster.Slot(key)))
	case keyed:
		c.sendToPrimary()
	default:
		c.substitute(codeWrite, cmd)
	}
}

// sendToPrimary redirects a write of which the keys are not known to the primary of this
// replica, by a slot that it really has. Were it not the right one, that node would say.
func (c *core) sendToPrimary() {
	of := ""
	if slot, ok := c.cfg.cluster.shardSlot(); ok {
		of = strconv.Itoa(slot)
	}
	c.substituteFor(codeMoved, of)
}

func (c *core) noRetry() { c.retry, c.replica, c.early = nil, false, false }

// notSetUp is the answer where a node of a cluster stands behind a listener for one server.
//
// INVARIANT: no client is sent to a node itself, where there is no fence in its way.
var notSetUp = errorLine(wordDown, "the server behind fenceproxy is a node of a cluster, and this listener is set up for a single server. "+
	"Set its upstream and control to redis+cluster:// and give it cluster.ports: see docs/redis.md, Cluster.")

// bindsNow begins to bind a session whose bind was refused for what may be over by now: its
// node was a replica, or the fence or the election backend could not be asked. That is
// tried once for each command, which is to be given again then.
func (c *core) bindsNow() bool {
	conn := &c.conn
	if c.retried || conn.multi || conn.replyOff || conn.skipNext || conn.monitor || c.replica && !c.cfg.cluster.primary() {
		return false
	}
	c.retried = true
	cred := c.retry
	c.flow = flow{retry: true}
	if c.ruling != nil {
		c.flow.adds = true
		c.noRetry()
	}
	c.bind(cred)
	return true
}

// moved is the redirection that the proxy makes itself.
func (c *core) moved(slot string) string {
	if n, err := strconv.Atoi(slot); err == nil {
		to, ok := c.cfg.cluster.owner(n)
		if !ok {
			return to.elsewhere()
		}
		return string(redirect("-MOVED", n, to))
	}
	return tryLater
}

// firstKey returns the first key of a whole command. keyed is true where it has one that
// is not told here.
func firstKey(cmd *command, raw []byte, s *scanner) (key []byte, keyed bool) {
	var at int
	switch cmd.Name {
	case "eval", "evalsha", "fcall", "blmpop", "bzmpop":
		at = 3
	case "lmpop", "zmpop":
		at = 2
	case "xreadgroup":
		for i := 4; i < s.argc-1; i++ {
			if equalFold(s.arg(raw, i), "streams") {
				return s.arg(raw, i+1), true
			}
		}
		return nil, true
	default:
		if cmd.First > 0 && cmd.First < s.argc {
			return s.arg(raw, cmd.First), true
		}
		return nil, cmd.Movable
	}
	if n := s.arg(raw, at-1); at < s.argc && len(n) > 0 && string(n) != "0" {
		return s.arg(raw, at), true
	}
	return nil, false
}
