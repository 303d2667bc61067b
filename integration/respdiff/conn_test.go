package respdiff

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// patience is how long an answer may take.
const patience = 20 * time.Second

// errLate ends a connection on which nothing came that was waited for.
var errLate = errors.New("nothing more came")

// A conn is a client that speaks bytes; it reads all the time, as a client must that does
// not want its peer to stop.
type conn struct {
	net.Conn
	name string
	wg   sync.WaitGroup

	mu      sync.Mutex
	more    sync.Cond
	raw     []byte // read, and not yet a reply
	got     [][]byte
	seen    int   // of got: awaited
	over    error // why reading ended: EOF, reset or a time-out
	pending []byte
	id      string
	left    bool // the other side has closed
}

func dial(addr, name string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(3 * patience))
	c := &conn{Conn: nc, name: name}
	c.more.L = &c.mu
	c.wg.Go(c.read)
	return c, nil
}

func (c *conn) close() {
	_ = c.Close()
	c.wg.Wait()
}

func (c *conn) read() {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		c.mu.Lock()
		c.raw = append(c.raw, b[:n]...)
		for len(c.raw) > 0 {
			k := replyLen(c.raw)
			if k == 0 && err == nil {
				break
			}
			if k == 0 {
				k = len(c.raw)
			}
			c.got = append(c.got, c.raw[:k:k])
			c.raw = c.raw[k:]
		}
		if err != nil {
			c.over = err
		}
		c.more.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits for the nth next reply of those that are meant, and returns it.
func (c *conn) await(n int, meant func([]byte) bool) ([]byte, error) {
	timer := time.AfterFunc(patience, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.over == nil {
			c.over = errLate
		}
		c.more.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for c.seen < len(c.got) {
			m := c.got[c.seen]
			c.seen++
			if meant(m) {
				if n--; n == 0 {
					return m, nil
				}
			}
		}
		if c.over != nil {
			return nil, fmt.Errorf("%s: %d more replies should come: %w", c.name, n, c.over)
		}
		c.more.Wait()
	}
}

// forget takes the newest awaited reply out of what is compared.
func (c *conn) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen--
	c.got = append(c.got[:c.seen], c.got[c.seen+1:]...)
}

func whichever([]byte) bool { return true }

func holding(text string) func([]byte) bool {
	return func(b []byte) bool { return bytes.Contains(b, []byte(text)) }
}

// end waits until the other side has closed.
func (c *conn) end() error {
	timer := time.AfterFunc(patience, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.over == nil {
		c.more.Wait()
	}
	if c.closed() == open {
		return errLate
	}
	return nil
}

func (c *conn) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over != nil
}

const open = "still open"

// closed says in which way the other side ended the connection, if it did.
func (c *conn) closed() string {
	var late net.Error
	switch {
	case c.over == nil, errors.Is(c.over, errLate), errors.As(c.over, &late) && late.Timeout():
		return open
	case errors.Is(c.over, io.EOF):
		return "closed"
	}
	return "closed" // whether closing resets depends on what the server had not yet read
}

// flush sends what is pending. That the other side has closed already is no error: what
// it said is compared.
func (c *conn) flush() {
	if len(c.pending) > 0 {
		_, _ = c.Write(c.pending)
		c.pending = c.pending[:0]
	}
}
