package resp

import (
	"context"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A hooked connection calls before or after its next change of the read deadline of that kind.
type hooked struct {
	net.Conn
	clearing, set func()
}

func (c *hooked) SetReadDeadline(t time.Time) error {
	if f := c.clearing; f != nil && t.IsZero() {
		c.clearing = nil
		f()
	}
	err := c.Conn.SetReadDeadline(t)
	if f := c.set; f != nil && !t.IsZero() {
		c.set = nil
		f()
	}
	return err
}

// The server's pump ends while the client's takes back a deadline that woke it: a client that
// keeps its side open has no longer than linger all the same.
func TestHangUpWhileWoken(t *testing.T) {
	const woken, reading = "woken", "reading ahead"
	for _, what := range []string{woken, reading} {
		for _, before := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				client, far := net.Pipe()
				upstream, farUpstream := net.Pipe()
				defer far.Close()
				defer farUpstream.Close()
				c := &hooked{Conn: client}
				defer c.Close()
				x := &session{client: c, upstream: upstream, wake: make(chan struct{}, 1), over: make(chan struct{}), core: boundCore()}
				on := func() {
					if what == woken {
						x.readOn(context.Background(), os.ErrDeadlineExceeded)
						return
					}
					x.wakeClient()
					x.readAhead(context.Background())
				}
				if before {
					c.clearing = x.hangUp
					on()
				} else {
					c.set = on
					if what == reading {
						c.set = func() {} // that of wakeClient
						x.wakeClient()
						c.set = func() { x.readAhead(context.Background()) }
					}
					x.hangUp()
				}
				began := time.Now()
				_, err := c.Read(make([]byte, 1))
				if !isTimeout(err) || time.Since(began) > linger {
					t.Errorf("%s, before %v: after %v %v", what, before, time.Since(began), err)
				}
				x.others.Wait()
			})
		}
	}
}
