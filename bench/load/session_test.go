package load

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A script is a stream that answers from a text, so many bytes a read.
type script struct {
	io.Reader
	wrote bytes.Buffer
}

func (s *script) Write(b []byte) (int, error) { return s.wrote.Write(b) }
func (s *script) Close() error                { return nil }
func (s *script) interrupt()                  {}

// pieces reads at most n bytes at a time.
type pieces struct {
	r io.Reader
	n int
}

func (p pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }

func TestPgAnswers(t *testing.T) {
	row := message(nil, 'D', bytes.Repeat([]byte("x"), 5000))
	ready := message(nil, 'Z', []byte("I"))
	refused := message(nil, 'E', []byte("SERROR\x00C42P01\x00Mno such table\x00\x00"))
	for _, c := range []struct {
		name    string
		answers []byte
		kind    byte
		n       int
		err     string
		rest    int // bytes that are not the answer's
	}{
		{"one", bytes.Join([][]byte{row, ready}, nil), 'Z', 1, "", 0},
		{"two", bytes.Join([][]byte{row, ready, row, row, ready}, nil), 'Z', 2, "", 0},
		{"another's", bytes.Join([][]byte{ready, row}, nil), 'Z', 1, "", len(row)},
		{"an error, and then ready", bytes.Join([][]byte{refused, ready}, nil), 'Z', 1, "no such table (SQLSTATE 42P01)", 0},
		{"an error in the place of COPY", bytes.Join([][]byte{refused}, nil), 'G', 1, "no such table", 0},
		{"the end", row, 'Z', 1, "EOF", 0},
		{"no length", []byte{'D', 0, 0, 0, 0, 0}, 'Z', 1, "a message of 1 bytes", 0},
	} {
		for _, n := range []int{1, 2, 5, 7, 1000, 1 << 20} {
			// A buffer smaller than a message shows that it need not hold one.
			p := &pgSession{stream: &script{Reader: pieces{bytes.NewReader(c.answers), n}}, buf: make([]byte, 4096)}
			err := p.until(c.kind, c.n)
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("%s, %d bytes a read: %v", c.name, n, err)
			}
			if c.rest > 0 && n == 1<<20 && p.have == 0 {
				t.Errorf("%s: what is not the answer's was thrown away", c.name)
			}
		}
	}
}

// A session goes on behind the end of an answer where it was.
func TestPgAnswersInARow(t *testing.T) {
	row := message(nil, 'D', bytes.Repeat([]byte("x"), 5000))
	one := bytes.Join([][]byte{row, message(nil, 'Z', []byte("I"))}, nil)
	for _, n := range []int{1, 3, 4096} {
		p := &pgSession{stream: &script{Reader: pieces{bytes.NewReader(bytes.Repeat(one, 5)), n}}, buf: make([]byte, 4096)}
		for i := range 5 {
			if err := p.until('Z', 1); err != nil {
				t.Fatalf("answer %d, %d bytes a read: %v", i, n, err)
			}
		}
		if err := p.until('Z', 1); err == nil {
			t.Error("there was a sixth")
		}
	}
}

func TestPgRequests(t *testing.T) {
	b, at := execute(nil, "r")
	// Bind: length 4+1+2+2+2+2+4+4+2, Execute: 4+1+4.
	if len(b) != 1+23+1+9 || at != 18 || b[0] != 'B' || b[24] != 'E' {
		t.Errorf("%q, parameter at %d of %d", b, at, len(b))
	}
	p := new(pgSession)
	p.prepared([]string{"r", "w", "r"})
	b, ready := p.next()
	if ready != 1 || bytes.Count(b, []byte("\x00r\x00")) != 2 || b[len(b)-5] != 'S' {
		t.Errorf("%q, %d", b, ready)
	}
	before := bytes.Clone(b)
	if again, _ := p.next(); bytes.Equal(before, again) {
		t.Error("the same row twice")
	}
}

func TestReplySize(t *testing.T) {
	for text, whole := range map[string]bool{
		"+OK\r\n": true, ":12\r\n": true, "-ERR no\r\n": true, "$-1\r\n": true, "*-1\r\n": true, "$0\r\n\r\n": true, "$3\r\na\r\n\r\n"[:9]: true,
		"*2\r\n$1\r\na\r\n*1\r\n:5\r\n": true, "": false, "+OK\r": false, "$3\r\nab": false, "*2\r\n:1\r\n": false, "*1\r\n$5\r\nabc\r\n": false,
	} {
		n, err := replySize([]byte(text + strings.Repeat("+NEXT\r\n", map[bool]int{true: 1}[whole])))
		if err != nil || whole && n != len(text) || !whole && n != 0 {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for _, bad := range []string{"x\r\n", "$x\r\n", "*1\r\n!\r\n"} {
		if n, err := replySize([]byte(bad)); err == nil {
			t.Errorf("%q: %d", bad, n)
		}
	}
}

func TestRedisAnswers(t *testing.T) {
	large := "$10000\r\n" + strings.Repeat("x", 10000) + "\r\n"
	for _, n := range []int{1, 7, 1 << 20} {
		r := &redisSession{stream: &script{Reader: pieces{strings.NewReader("+OK\r\n" + large), n}}, buf: make([]byte, 16)}
		if got, err := r.answers(2); err != nil || string(got) != "+OK\r\n"+large {
			t.Errorf("%d bytes a read: %d bytes, %v", n, len(got), err)
		}
		r = &redisSession{stream: &script{Reader: pieces{strings.NewReader("+OK\r\n-ERR no\r\n"), n}}, buf: make([]byte, 16)}
		var refused *refusedError
		if _, err := r.answers(2); !errors.As(err, &refused) || refused.text != "ERR no" {
			t.Errorf("an error: %v", err)
		}
	}
	r := &redisSession{stream: &script{Reader: strings.NewReader("+OK\r\n+OK\r\n")}, buf: make([]byte, 64)}
	if _, err := r.answers(1); err == nil {
		t.Error("a reply too many")
	}
}

func TestRedisRequests(t *testing.T) {
	r := new(redisSession)
	r.randomKeys([]string{"GET", ""}, []string{"SET", "", "v"})
	b, n := r.next()
	text := string(b)
	if n != 2 || !strings.HasPrefix(text, "*2\r\n$3\r\nGET\r\n$29\r\n"+redisPrefix) || !strings.HasSuffix(text, "$1\r\nv\r\n") {
		t.Errorf("%q", text)
	}
	if again, _ := r.next(); string(again) == text {
		t.Error("the same keys twice")
	}
	d := []byte("............")
	digits(d, 12345)
	if string(d) != "000000012345" {
		t.Errorf("%s", d)
	}
}

// pair is a stream and the other end of it.
func pair(t *testing.T) (stream, net.Conn) {
	t.Helper()
	l := testenv.Listen(t)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	s, err := newStream(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, other
}

func TestStream(t *testing.T) {
	s, other := pair(t)
	defer s.Close()
	much := bytes.Repeat([]byte("y"), 4<<20)
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := s.Write(much); n != len(much) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	})
	got := make([]byte, len(much))
	if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got, much) {
		t.Errorf("read: %v", err)
	}
	wg.Wait()
	if _, err := other.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	if n, err := s.Read(b); err != nil || string(b[:n]) != "abc" {
		t.Errorf("%q, %v", b[:n], err)
	}
	other.Close()
	if _, err := s.Read(b); err == nil {
		t.Error("read from a connection that has ended")
	}
}

// A session that waits for an answer ends with the run.
func TestInterrupt(t *testing.T) {
	s, other := pair(t)
	defer s.Close()
	ctx, cancel := context.WithCancel(testenv.Context(t))
	defer cancel()
	r := &redisSession{stream: s, buf: make([]byte, 64)}
	r.next = func() ([]byte, int) { return command(nil, "PING"), 1 }
	go func() { // returns when the request has come
		_, _ = io.ReadFull(other, make([]byte, 4))
		cancel()
	}()
	if _, err := closedLoop(ctx, []session{r}, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
