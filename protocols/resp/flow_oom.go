package resp

import (
	"bytes"
	"strconv"
)

// nameFull gives the name without MULTI.
//
// INVARIANT: the name comes before GET. If GET shows the permit's record, the raise that
// ends it comes later still, and the sever after that finds the name.
func (c *core) nameFull() {
	f := &c.flow
	cmds := [][]string{{"CLIENT", "SETNAME", f.binding.name}, {"GET", f.binding.key}}
	if f.db != c.cfg.fenceDB {
		cmds = append([][]string{{"SELECT", strconv.Itoa(c.cfg.fenceDB)}}, cmds...)
	}
	c.send(stepNameFull, c.andBack(cmds))
}

func (c *core) nameGivenFull(replies [][]byte) {
	f := &c.flow
	if f.db != c.cfg.fenceDB {
		if !isOK(replies[0]) || !isOK(replies[3]) {
			c.doubt("the server's answers to the bind were not as they must be")
			return
		}
		replies = replies[1:]
	}
	switch set, get := replies[0], replies[1]; {
	case !isOK(set), len(get) > 0 && get[0] == '-':
		c.fail(c.rights())
	case bytes.Equal(get, appendBulk(nil, f.binding.value)):
		f.step = stepLive
		c.ask = question{kind: askLive}
	default:
		c.tryAgain() // and the name goes if that fails
	}
}
