package pgdiff

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
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
	c    net.Conn
	name string
	wg   sync.WaitGroup

	mu      sync.Mutex
	more    sync.Cond
	raw     []byte // read, and not yet a message
	bare    int    // answers of one byte that are owed
	got     []message
	seen    int   // of got: awaited
	over    error // why reading ended: EOF, reset or a time-out
	pending []byte
	asked   []string // for encryption
}

func dial(addr, name string) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(2 * patience))
	c := &conn{c: nc, name: name}
	c.more.L = &c.mu
	c.wg.Go(c.read)
	return c, nil
}

func (c *conn) close() {
	_ = c.c.Close()
	c.wg.Wait()
}

func (c *conn) read() {
	b := make([]byte, 64<<10)
	for {
		n, err := c.c.Read(b)
		c.mu.Lock()
		c.raw = append(c.raw, b[:n]...)
		c.split()
		if err != nil {
			c.over = err
			if len(c.raw) > 0 {
				c.got = append(c.got, message{body: c.raw})
			}
		}
		c.more.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// split takes whole messages off raw.
func (c *conn) split() {
	for len(c.raw) > 0 {
		if c.bare > 0 && c.raw[0] != 'E' {
			c.bare--
			c.got = append(c.got, message{typ: c.raw[0], bare: true})
			c.raw = c.raw[1:]
			continue
		}
		if len(c.raw) < 5 {
			return
		}
		n := 1 + int(binary.BigEndian.Uint32(c.raw[1:]))
		if n < 5 || len(c.raw) < n {
			return
		}
		c.got = append(c.got, message{typ: c.raw[0], body: c.raw[5:n:n]})
		c.raw = c.raw[n:]
	}
}

// await waits for the nth next message of a type, or any byte that answers a request for
// encryption where the type is zero, and returns it.
func (c *conn) await(typ byte, n int) (message, error) {
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
			if m.typ == typ && !m.bare || typ == 0 && m.bare {
				if n--; n == 0 {
					return m, nil
				}
			}
		}
		if c.over != nil {
			return message{}, fmt.Errorf("%s: no %q came: %w", c.name, typ, c.over)
		}
		c.more.Wait()
	}
}

// end waits until the other side has closed, and returns all that came.
func (c *conn) end() []message {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.over == nil {
		c.more.Wait()
	}
	return c.got
}

const open = "still open"

// closed says in which way the other side ended the connection.
func (c *conn) closed() string {
	var late net.Error
	switch {
	case errors.Is(c.over, errLate), errors.As(c.over, &late) && late.Timeout():
		return open
	case errors.Is(c.over, io.EOF):
		return "closed"
	case errors.Is(c.over, io.ErrUnexpectedEOF):
		return "cut off" // TLS without its own goodbye
	}
	return "reset"
}

// encryption asks for encryption by its name and awaits the answer, which must be no.
//
// A server that was built with GSSAPI says yes to that, always, where the proxy has none.
// A client that then asks for nothing else begins again: so does this.
func (c *conn) encryption(name string) error {
	c.flush()
	m, err := c.ask(name)
	if err != nil || name != "gss" || m.typ != 'G' {
		c.asked = append(c.asked, name)
		return err
	}
	if err := c.again(); err != nil {
		return err
	}
	for _, before := range c.asked {
		if _, err := c.ask(before); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, message{typ: 'N', bare: true})
	c.seen = len(c.got)
	return nil
}

// tls begins TLS, after a request for it or at once.
func (c *conn) tls(roots *x509.CertPool, direct bool) error {
	if !direct {
		if m, err := c.ask("ssl"); err != nil || m.typ != 'S' {
			return fmt.Errorf("asked for TLS: %v, %w", m, err)
		}
	}
	// The other side now waits for this one: nothing is read by mistake.
	_ = c.c.SetReadDeadline(time.Unix(1, 0))
	c.wg.Wait()
	_ = c.c.SetDeadline(time.Now().Add(2 * patience))
	t := tls.Client(c.c, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"postgresql"}, MinVersion: tls.VersionTLS12})
	if err := t.Handshake(); err != nil {
		return err
	}
	c.c, c.over = t, nil
	c.wg.Go(c.read)
	return nil
}

// hasty asks for encryption in one packet with what is sent next.
func (c *conn) hasty(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bare++
	c.pending = append(c.pending, 0, 0, 0, 8, 4, 210, 22, encryptions[name])
}

// encryptions are the last bytes of the requests.
var encryptions = map[string]byte{"ssl": 47, "gss": 48}

// ask sends a request for encryption and returns its answer.
func (c *conn) ask(name string) (message, error) {
	c.mu.Lock()
	c.bare++
	c.mu.Unlock()
	if _, err := c.c.Write([]byte{0, 0, 0, 8, 4, 210, 22, encryptions[name]}); err != nil {
		return message{}, err
	}
	return c.await(0, 1)
}

// again connects anew.
func (c *conn) again() error {
	addr := c.c.RemoteAddr().String()
	c.close()
	fresh, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	_ = fresh.SetDeadline(time.Now().Add(2 * patience))
	c.c, c.got, c.seen, c.over = fresh, nil, 0, nil
	c.wg.Go(c.read)
	return nil
}

// flush sends what is pending. That the other side has closed already is no error: what
// it said is compared.
func (c *conn) flush() {
	if len(c.pending) > 0 {
		_, _ = c.c.Write(c.pending)
		c.pending = c.pending[:0]
	}
}
