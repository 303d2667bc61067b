package resp

import (
	"strings"
	"testing"
)

// What passes allocates nothing: commands of a bound session, of a reader, refused ones,
// and replies.
func TestNothingAllocatesPerMessage(t *testing.T) {
	set := strings.Repeat("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$4\r\nMGET\r\n$1\r\na\r\n", 16)
	for _, x := range []struct {
		name string
		c    *core
	}{{"bound", boundCore()}, {"reader", newCore(testConfig())}} {
		b := []byte(set)
		if n := testing.AllocsPerRun(100, func() {
			x.c.fromClient(b)
			x.c.up = x.c.up[:0]
		}); n != 0 {
			t.Errorf("%s: %v allocations", x.name, n)
		}
	}
	replies := []byte(strings.Repeat("+OK\r\n$3\r\nabc\r\n*2\r\n:1\r\n$-1\r\n%1\r\n+a\r\n_\r\n-ERR no\r\n", 16))
	c := boundCore()
	if n := testing.AllocsPerRun(100, func() {
		if err := c.fromServer(replies); err != nil {
			t.Fatal(err)
		}
		c.down = c.down[:0]
	}); n != 0 {
		t.Errorf("replies: %v allocations", n)
	}
}

func BenchmarkClient(b *testing.B) {
	c := boundCore()
	stream := []byte(strings.Repeat("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000001\r\n$3\r\nxxx\r\n", 16))
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		c.fromClient(stream)
		c.up = c.up[:0]
	}
}

func BenchmarkServer(b *testing.B) {
	c := boundCore()
	stream := []byte(strings.Repeat("+OK\r\n$3\r\nxxx\r\n", 16))
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		_ = c.fromServer(stream)
		c.down = c.down[:0]
	}
}
