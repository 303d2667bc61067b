package resp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// Inline commands are split as the server splits them: a script that returns its
// arguments shows how.
func TestInlineIsSplitAsByTheServer(t *testing.T) {
	c, err := net.Dial("tcp", testenv.SharedRedis(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	r := bufio.NewReader(c)
	random := rand.New(rand.NewSource(1))
	alphabet := []string{"a", "b", " ", "\t", "\v", "\"", "'", "\\", "\\x41", "\\x4", "\\n", "\\\"", "\\'", "\r", "é", "\x01", "x"}
	tried := 0
	for range 5000 {
		var line strings.Builder
		for range random.Intn(12) {
			line.WriteString(alphabet[random.Intn(len(alphabet))])
		}
		got, argc, ok := splitInline(nil, []byte(strings.TrimSuffix(line.String(), "\r")))
		if !ok {
			continue // the server closes: compared in TestBoundSessionIsTheServersOwn
		}
		if _, err := fmt.Fprintf(c, "EVAL 'return ARGV' 0 %s\r\n", line.String()); err != nil {
			t.Fatal(err)
		}
		head, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(head, "*%d", &n); err != nil {
			t.Fatalf("%q: %q", line.String(), head)
		}
		var want bytes.Buffer
		want.WriteString(head)
		for range n {
			size, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var k int64
			if _, err := fmt.Sscanf(size, "$%d", &k); err != nil {
				t.Fatal(size)
			}
			want.WriteString(size)
			if _, err := io.CopyN(&want, r, k+2); err != nil {
				t.Fatal(err)
			}
		}
		if string(got) != want.String() || n != argc {
			t.Fatalf("%q: got %q, the server %q", line.String(), got, want.String())
		}
		tried++
	}
	if tried < 1000 {
		t.Errorf("only %d lines", tried)
	}
}
