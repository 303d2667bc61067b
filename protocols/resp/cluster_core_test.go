package resp

import (
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/guard/rediscluster"
)

// testCluster is a cluster of three primaries with ids a..., b... and c..., and a replica
// d... of b, at 10.0.0.1:6379 to 10.0.0.4:6379; node e... is known later, and f... has no port. The session is on
// b, or, as a replica, on d.
type testCluster struct{ replica, later bool }

func (t *testCluster) id() string {
	if t.replica {
		return testID('d')
	}
	return testID('b')
}

func testID(c byte) string { return strings.Repeat(string(c), 40) }

func (t *testCluster) primary() bool { return !t.replica }

func (t *testCluster) node(id []byte) (address, bool) {
	for i, c := range []byte("abcde") {
		if string(id) == testID('f') {
			return address{unserved: testID('f')}, false
		}
		if string(id) == testID(c) && (c != 'e' || t.later) {
			return address{host: "proxy", port: 7001 + i}, true
		}
	}
	return address{}, false
}

func (t *testCluster) redirected(_ int, _ bool, host, port string) (address, bool) {
	switch {
	case port != "6379":
		return address{}, false
	case host == "":
		return t.node([]byte(t.id()))
	}
	n, ok := strings.CutPrefix(host, "10.0.0.")
	i, err := strconv.Atoi(n)
	if !ok || err != nil || i < 1 || i > 6 {
		return address{}, false
	}
	return t.node([]byte(testID('a' + byte(i) - 1)))
}

func (t *testCluster) owner(slot int) (address, bool) {
	c := "abc"[slot*3/rediscluster.Slots]
	if !t.replica && c == 'b' {
		return address{}, false
	}
	return t.node([]byte(testID(c)))
}

func (t *testCluster) shardSlot() (int, bool) { return 6000, t.replica }

func testClusterConfig() coreConfig {
	c := testConfig()
	c.cluster = &testCluster{}
	return c
}

// What is not changed comes out as it was.
func TestValues(t *testing.T) {
	for _, s := range []string{
		"+OK\r\n", "-ERR x\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "_\r\n", "$0\r\n\r\n", "=7\r\ntxt:abc\r\n", "#t\r\n", ",1.5\r\n", "(12\r\n",
		"*2\r\n*1\r\n:1\r\n%1\r\n+a\r\n~1\r\n$1\r\nb\r\n", "*0\r\n", "%0\r\n",
	} {
		v, rest, ok := parseValue([]byte(s))
		if !ok || len(rest) > 0 {
			t.Errorf("%q is not understood", s)
		} else if got := string(v.append(nil)); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	for _, s := range []string{
		"", "\r\n", "+OK", "$3\r\nab\r\n", "*2\r\n:1\r\n", "*1000000000\r\n", "$99999999999999999\r\n", "*-2\r\n", "?\r\n", "$x\r\n", "%1\r\n:1\r\n",
		strings.Repeat("*1\r\n", 50) + ":1\r\n",
	} {
		if _, _, ok := parseValue([]byte(s)); ok {
			t.Errorf("%q is understood", s)
		}
	}
}

// A session may end while a long answer of the server's is under way that it has begun to keep.
func TestSessionEndsInALongAnswer(t *testing.T) {
	c := newCore(testClusterConfig())
	c.flow = flow{list: listNodes}
	c.askList()
	if err := c.fromServer(append([]byte("$300000\r\n"), make([]byte, 200000)...)); err != nil {
		t.Fatal(err)
	}
	c.end("-FENCED\r\n")
	if err := c.fromServer(append(make([]byte, 100000), "\r\n+PONG\r\n"...)); err != nil || !c.closed {
		t.Errorf("%v, closed %v", err, c.closed)
	}
}
