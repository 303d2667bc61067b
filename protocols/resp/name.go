package resp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard"
)

// name gives the connection the bound name and then asks what the bind rests on, all in
// one flight.
//
// INVARIANT: the name is on before the role and the record are read. So a raise on this
// primary that the record does not show yet comes after the name, and its sever finds
// it. A node that is no primary is refused: it may lag behind a raise whose sever has
// swept it already. A demotion after the role was read comes before any raise on another
// node that could matter here, and the sever of that one covers the replicas.
//
// HELLO without arguments changes nothing, and no ACL can forbid it.
//
// In a cluster the record is on other nodes too: the shell looks at it, after these
// answers. What is asked here instead is which node this is.
func (c *core) name() {
	f := &c.flow
	c.worn = c.nameWith(f.binding)
	f.off = true
	cmds := [][]string{{"CLIENT", "SETNAME", c.worn}, {"HELLO"}, {"GET", f.binding.key}}
	if c.cfg.cluster != nil {
		cmds[2] = []string{"CLUSTER", "MYID"}
	}
	if c.elsewhere() {
		cmds = append([][]string{{"SELECT", strconv.Itoa(c.cfg.fenceDB)}}, cmds...)
		cmds = append(cmds, []string{"SELECT", strconv.Itoa(f.db)})
	}
	c.named = true
	c.send(stepName, cmds)
}

// elsewhere reports whether the client works in another database than the fence's.
func (c *core) elsewhere() bool { return c.flow.db != c.cfg.fenceDB }

// nameGiven looks at the answers. Where they leave a doubt, the connection ends.
func (c *core) nameGiven(replies [][]byte) {
	f := &c.flow
	there, chosen := true, []byte(nil)
	if c.elsewhere() {
		var back bool
		there, back = isOK(replies[0]), isOK(replies[4])
		chosen, replies = replies[0], replies[1:4]
		if there && !back {
			c.doubt("the connection could not be put back into its database")
			return
		}
	}
	set, hello, last := replies[0], replies[1], replies[2]
	role, understood := roleIn(hello)
	switch {
	case !there:
		c.fail(c.unable(c.lacks("select", chosen)))
	case isError(set):
		c.fail(c.unable(c.lacks("client|setname", set)))
	case isError(hello):
		c.fail(c.unable(c.lacks("hello", hello)))
	case !isOK(set), !understood:
		c.doubt("the server's answers to the bind were not as they must be")
	case role != "master" && c.cfg.cluster != nil:
		c.replica = true
		c.retryWith(f.cred)
		c.fail(c.unable("this node is a replica, and only a primary can be written"))
	case role != "master":
		c.fail(c.unable("the server behind the proxy is a replica, and only a primary can be written"))
	case isError(last) && c.cfg.cluster != nil:
		c.fail(c.unable(c.lacks("cluster|myid", last)))
	case isError(last):
		c.fail(c.unable(c.lacks("get", last)))
	case c.cfg.cluster != nil && !bytes.Equal(last, appendBulk(nil, c.cfg.cluster.id())):
		c.fail(c.unable("another node of the cluster was expected at this address; reconnect"))
	case c.cfg.cluster != nil:
		// INVARIANT: the name is on this very node, which the record must name.
		f.step = stepRecord
		c.ask = question{kind: askRecord}
	case bytes.Equal(last, appendBulk(nil, f.binding.value)):
		// INVARIANT: the whole record is equal: number, holder, severed, and the raise.
		f.step = stepLive
		c.ask = question{kind: askLive}
	default:
		c.tryAgain()
	}
}

// A confirmation is the cluster's answer whether its record is the permit's.
type confirmation uint8

const (
	isRecorded confirmation = iota
	isChanged
	isEarly // the cluster does not know yet that the node is a primary
	isUnknown
)

// recorded takes the shell's answer for the node that the session is on.
//
// why says more to the log, where the answer is none.
func (c *core) recorded(is confirmation, why error) {
	c.ask = question{}
	if c.flow.step != stepRecord || c.ended {
		return
	}
	switch is {
	case isRecorded:
		c.flow.step = stepLive
		c.ask = question{kind: askLive}
	case isChanged:
		c.tryAgain()
	case isEarly:
		c.early = true
		c.retryWith(c.flow.cred)
		c.fail(c.unable("the cluster does not know yet that this node is a primary"))
	default:
		c.retryWith(c.flow.cred)
		r := c.unable("the fence on the nodes of the cluster could not be looked at")
		r.Err = why
		c.fail(r)
	}
}

func (c *core) unable(detail string) *guard.Refusal {
	f := &c.flow
	return &guard.Refusal{Reason: guard.Unbindable, Election: f.cred.election, Held: f.binding.term.Number, Detail: detail}
}

// tryAgain admits anew, without the name: the fence is not the permit's any more.
func (c *core) tryAgain() {
	f := &c.flow
	if f.tries++; f.tries >= maxTries {
		c.fail(c.unable("the fence changed at each of several attempts to bind; try again"))
		return
	}
	f.failed = nil
	c.unname()
}

// unname gives the connection the name of the terms that the session is still bound to, or
// else the client's own.
func (c *core) unname() {
	c.send(stepUnname, [][]string{{"CLIENT", "SETNAME", c.restName()}})
}

func (c *core) unnamed(reply []byte) {
	off := isOK(reply)
	c.named = !off || c.bound != nil
	switch failed := c.flow.failed; {
	case failed != nil:
		c.finish(failed)
	case !off:
		c.doubt("the bound name could not be taken off again")
	default:
		c.admit(c.flow.binding)
	}
}

// roleIn finds the server's role in the answer to HELLO: pairs, in an array or a map,
// of which the ones before the role have a text or a number.
func roleIn(hello []byte) (role string, ok bool) {
	s := string(hello)
	if s == "" || s[0] != '*' && s[0] != '%' {
		return "", false
	}
	_, s, ok = strings.Cut(s, "\r\n")
	for ok {
		var key, value string
		if key, s, ok = cutScalar(s); !ok {
			break
		}
		if value, s, ok = cutScalar(s); ok && key == "$role" {
			return strings.CutPrefix(value, "$")
		}
	}
	return "", false
}

// cutScalar takes a text, as $text, or a number, as :number, from the front of s.
func cutScalar(s string) (value, rest string, ok bool) {
	line, rest, ok := strings.Cut(s, "\r\n")
	switch {
	case !ok || line == "":
		return "", "", false
	case line[0] == ':':
		return line, rest, true
	case line[0] != '$':
		return "", "", false
	}
	n, ok := parseLen([]byte(line[1:]))
	if !ok || n < 0 || int64(len(rest)) < n+2 {
		return "", "", false
	}
	return "$" + rest[:n], rest[n+2:], true
}

func isOK(reply []byte) bool { return string(reply) == "+OK\r\n" }

func isError(reply []byte) bool { return len(reply) > 0 && reply[0] == '-' }
