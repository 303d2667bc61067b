package zookeeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

// frame is a message of a server: a header, and a body.
func frame(xid, code int32, body string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	out = binary.BigEndian.AppendUint32(out, uint32(xid))
	out = binary.BigEndian.AppendUint64(out, 7)
	out = binary.BigEndian.AppendUint32(out, uint32(code))
	return append(out, body...)
}

// stream is a connection that a server's bytes can be read from, one at a time or all at
// once.
type stream struct {
	net.Conn
	io.Reader
	closed bool
}

func (s *stream) Read(b []byte) (int, error)      { return s.Reader.Read(b) }
func (s *stream) Close() error                    { s.closed = true; return nil }
func (s *stream) SetReadDeadline(time.Time) error { return nil }

// Safety: no length that is too long reaches the library, which would allocate it; and
// a read is never answered without its sync.
func TestWireReads(t *testing.T) {
	greeting := frame(0, 0, "session and passwd.")
	for name, c := range map[string]struct {
		sent []byte
		good int // how much of it is passed on; the rest is refused
	}{
		"All":            {bytes.Join([][]byte{greeting, frame(1, 0, "x"), frame(syncXid, 0, "/"), frame(2, -101, "")}, nil), -1},
		"TooLong":        {append(bytes.Clone(greeting), 0x48, 0x54, 0x54, 0x50, 0x2f), len(greeting)},
		"JustTooLong":    {binary.BigEndian.AppendUint32(bytes.Clone(greeting), maxFrame+1), len(greeting)},
		"Negative":       {append(bytes.Clone(greeting), 0xff, 0xff, 0xff, 0xff), len(greeting)},
		"TooShort":       {append(bytes.Clone(greeting), 0, 0, 0, 15), len(greeting)},
		"GreetingLong":   {[]byte("HTTP/1.1 400 Bad Request"), 0},
		"SyncRefused":    {bytes.Join([][]byte{greeting, frame(syncXid, -1, ""), frame(1, 0, "x")}, nil), len(greeting) + 20},
		"RefusedNotSync": {bytes.Join([][]byte{greeting, frame(3, -1, ""), frame(1, 0, "x")}, nil), -1},
	} {
		for way, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "half": iotest.HalfReader,
		} {
			s := &stream{Reader: reader(bytes.NewReader(c.sent))}
			var broken error
			w := newWire(s, time.Second, func(err error) { broken = err })
			got, err := io.ReadAll(w)
			if c.good < 0 {
				if err != nil || !bytes.Equal(got, c.sent) || s.closed {
					t.Errorf("%s, %s: %q, %v", name, way, got, err)
				}
				continue
			}
			// Nothing of what is refused is passed on but the beginning of a length.
			if err == nil || broken == nil || !s.closed || len(got) > c.good+3 || !bytes.HasPrefix(c.sent, got) {
				t.Errorf("%s, %s: %q, %v", name, way, got, err)
			}
		}
	}
}

// What the library writes goes out as it is, but for the sync before a read and the end
// of the session.
func TestWireWrites(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	w := newWire(near, time.Minute, func(error) {})
	request := func(op int32) []byte {
		b := frame(5, 0, "")[:12]
		binary.BigEndian.PutUint32(b[8:], uint32(op))
		return b
	}
	for i, c := range []struct{ in, out []byte }{
		{request(opClose), request(opClose)}, // the first is the greeting, whatever it looks like
		{request(1), request(1)},
		{request(opGetData), append(bytes.Clone(syncRequest), request(opGetData)...)},
		{request(opGetData), append(bytes.Clone(syncRequest), request(opGetData)...)},
		{[]byte("short"), []byte("short")},
	} {
		got := make(chan []byte, 1)
		go func() {
			b := make([]byte, len(c.out))
			_, _ = io.ReadFull(far, b)
			got <- b
		}()
		if n, err := w.Write(c.in); n != len(c.in) || err != nil {
			t.Fatalf("%d: %d, %v", i, n, err)
		}
		if b := <-got; !bytes.Equal(b, c.out) {
			t.Errorf("%d: %q, want %q", i, b, c.out)
		}
	}
	if _, err := w.Write(request(opClose)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if rest, err := io.ReadAll(far); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}
