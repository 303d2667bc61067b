package admin

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSorry bounds those who are told at once that there is no room. Others are closed
	// without a word.
	maxSorry = 64
	// sorryFor is how long one may take to hear it.
	sorryFor = time.Second
)

// noRoom is the answer to a connection above the bound.
const noRoom = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Length: 91\r\n\r\n" + `{"error":{"code":"too-many-connections","message":"as many as are allowed are connected"}}` + "\n"

// bounded turns away the connections above most.
type bounded struct {
	net.Listener
	most  int64
	plain bool // they can be told
	open  atomic.Int64

	telling atomic.Int64
	sorry   sync.WaitGroup // those that are told
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.most {
			return &counted{Conn: c, of: b}, nil
		}
		b.open.Add(-1)
		if b.plain && b.telling.Add(1) <= maxSorry {
			b.sorry.Go(func() {
				defer b.telling.Add(-1)
				turnAway(c)
			})
			continue
		}
		if b.plain {
			b.telling.Add(-1)
		}
		_ = c.Close()
	}
}

// turnAway tells a caller that there is no room. Closing with its request unread would reset
// the connection, and it could lose the answer.
func turnAway(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(sorryFor))
	if _, err := io.WriteString(c, noRoom); err != nil {
		return
	}
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c, maxHeader))
}

type counted struct {
	net.Conn
	of     *bounded
	closed atomic.Bool
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.of.open.Add(-1)
	}
	return c.Conn.Close()
}
