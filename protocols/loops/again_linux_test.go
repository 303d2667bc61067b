package loops

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// A connection of which there is always more takes one turn between two waits, however many
// events tell of it: the others' would come later and later.
func TestOneTurnEach(t *testing.T) {
	l := new(loop)
	c := newConn(l, -1, new(net.TCPAddr), new(net.TCPAddr))
	turns := 0
	c.in.each = func() bool { turns++; return true } // and there is more
	for range 5 {
		c.happened(l, unix.EPOLLIN)
	}
	if len(l.again) != 1 {
		t.Errorf("it stands in line %d times after %d turns", len(l.again), turns)
	}
}
