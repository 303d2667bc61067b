package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// maxFrame is the longest message taken from a server: an election's record is a few
// hundred bytes. The library allocates what a length says.
const maxFrame = 64 << 10

// What a request's header says that it is.
const (
	opGetData = 4
	opSync    = 9
	opClose   = -11
)

// syncXid numbers our own sync requests. Replies to numbers below zero are none of the
// library's, which ignores them; the server uses -1, -2, -4 and -8 for itself.
const syncXid = -100

// A wire is a connection to a server under the library, which writes one whole message
// at a time. It does what the library does not:
//
//   - every read of data has a sync before it, in the same flight, and so is answered
//     by a server that has caught up with the leader (docs/elections/zookeeper.md says
//     what that means at the leader). The library has no way to send two requests in
//     order without waiting for the first.
//   - a message that is too long, or a refused sync, ends the connection.
//   - a server that does not greet in time is given up.
//   - the request to close the session is not sent: closing a backend gives up no
//     leadership.
type wire struct {
	net.Conn
	broken func(error) // called with every error of reading
	begin  time.Time
	heard  atomic.Int64 // when something was read last, since begin

	greeted atomic.Bool // the server's first message was read
	said    bool        // ours was written
	out     []byte

	head [4 + 16]byte // the beginning of the message being read: its length and its header
	got  int          // how much of head
	left int          // how much of the message is still to come, once its length is known
}

var errFrame = errors.New("the server sent a message that is not ZooKeeper's")

// newWire returns a wire on c; a server that has not greeted within patience is
// given up.
func newWire(c net.Conn, patience time.Duration, broken func(error)) *wire {
	w := &wire{Conn: c, broken: broken, begin: time.Now()}
	_ = c.SetReadDeadline(w.begin.Add(patience))
	return w
}

// heardSince reports whether anything was read since.
func (w *wire) heardSince(t time.Time) bool {
	return w.begin.Add(time.Duration(w.heard.Load())).After(t)
}

// SetReadDeadline implements net.Conn. The library allows a greeting ten times the
// session's timeout, and then any time for the second half of it.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.greeted.Load() {
		return nil
	}
	return w.Conn.SetReadDeadline(t)
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if !w.said || len(b) < 12 {
		w.said = true // the greeting, which has no header
		return w.Conn.Write(b)
	}
	switch int32(binary.BigEndian.Uint32(b[8:])) {
	case opClose:
		_ = w.Conn.Close()
		return 0, net.ErrClosed
	case opGetData:
		w.out = append(append(w.out[:0], syncRequest...), b...)
		n, err := w.Conn.Write(w.out)
		return max(0, n-len(syncRequest)), err
	}
	return w.Conn.Write(b)
}

// syncRequest asks the server to catch up: length, xid, operation, path.
var syncRequest = []byte{
	0, 0, 0, 13,
	syncXid >> 24 & 0xff, syncXid >> 16 & 0xff, syncXid >> 8 & 0xff, syncXid & 0xff,
	0, 0, 0, opSync,
	0, 0, 0, 1, '/',
}

// Read implements net.Conn. It follows the messages, and does not hand on the length
// of one that is too long.
func (w *wire) Read(b []byte) (int, error) {
	if w.got < 4 {
		b = b[:min(len(b), 4-w.got)]
	} else {
		b = b[:min(len(b), w.left)]
	}
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.begin)))
		if bad := w.follow(b[:n]); bad != nil {
			_ = w.Conn.Close()
			n, err = 0, bad
		}
	}
	if err != nil {
		w.broken(err)
	}
	return n, err
}

// follow takes note of what was read: of the length, or of what is behind it.
func (w *wire) follow(b []byte) error {
	if w.got < 4 {
		w.got += copy(w.head[w.got:4], b)
		if w.got < 4 {
			return nil
		}
		length := binary.BigEndian.Uint32(w.head[:])
		if length > maxFrame || length < 16 {
			return errFrame
		}
		w.left = int(length)
		return nil
	}
	w.got += copy(w.head[w.got:], b)
	w.left -= len(b)
	if w.left > 0 {
		return nil
	}
	w.got = 0
	if !w.greeted.Swap(true) {
		return w.Conn.SetReadDeadline(time.Time{})
	}
	xid, code := int32(binary.BigEndian.Uint32(w.head[4:])), int32(binary.BigEndian.Uint32(w.head[16:]))
	if xid == syncXid && code != 0 {
		return fmt.Errorf("the server refused to sync, code %d", code)
	}
	return nil
}
