package pgdiff

import (
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A place is where scripts are run: the server itself, or the proxy before it.
type place struct {
	addr  string
	proxy bool
	admin *pgx.Conn // the superuser's, straight to the server
	token string    // the live one
	roots *x509.CertPool
}

// A run is one script being followed.
type run struct {
	place
	as     string
	joined bool // all messages up to a wait in one packet
	side   *side
	now    *conn
	user   string
}

const options = "-c default_transaction_read_only=on"

// follow runs a script and returns what came back.
func (p place) follow(ctx context.Context, s *script, as, mode string) (*side, error) {
	setup := append([]string{"DELETE FROM t"}, s.setup...)
	if _, err := p.admin.Exec(ctx, strings.Join(setup, ";"), pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("setup: %w", err)
	}
	r := &run{place: p, as: as, joined: mode == "joined", side: &side{}, user: "app"}
	defer func() {
		for _, c := range r.side.conns {
			c.close()
		}
	}()
	if err := r.on("a"); err != nil {
		return nil, err
	}
	for _, st := range s.steps {
		if err := r.step(ctx, st); err != nil {
			r.side.failed = fmt.Sprintf("%s: %v", st.line, err)
			break
		}
	}
	for _, c := range r.side.conns {
		c.flush()
		if r.side.failed != "" {
			_ = c.c.SetDeadline(time.Now().Add(time.Second))
		}
	}
	for _, c := range r.side.conns {
		c.end()
	}
	r.side.settle()
	err := p.admin.QueryRow(ctx, "SELECT coalesce(string_agg(a||'='||coalesce(b,'null'), ' ' ORDER BY a),'none') FROM t").Scan(&r.side.rows)
	return r.side, err
}

// on goes on with a connection.
func (r *run) on(name string) error {
	for _, c := range r.side.conns {
		if c.name == name {
			r.now = c
			return nil
		}
	}
	c, err := dial(r.addr, name)
	if err != nil {
		return err
	}
	r.side.conns = append(r.side.conns, c)
	r.now = c
	return nil
}

// send sends bytes now, or with what follows.
func (r *run) send(c *conn, b []byte) {
	c.pending = append(c.pending, b...)
	if !r.joined {
		c.flush()
	}
}

func (r *run) say(c *conn, f ...string) error {
	b, err := encode(f)
	if err == nil {
		r.send(c, b)
	}
	return err
}

func (r *run) step(ctx context.Context, st step) error {
	c, args := r.now, st.args
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch st.verb {
	case ">":
		return r.say(c, args...)
	case "raw":
		b, err := hex.DecodeString(strings.Join(args, ""))
		r.send(c, b)
		return err
	case "login":
		if err := r.start("3.0", args); err != nil {
			return err
		}
		c.flush()
		_, err := c.await('Z', 1)
		return err
	case "start":
		return r.start(arg(0), args[1:])
	case "hasty":
		c.hasty(arg(0))
	case "ssl", "gss":
		return c.encryption(st.verb)
	case "password":
		return r.password(c, r.user, arg(0), arg(1))
	case "tls":
		c.flush()
		return c.tls(r.roots, arg(0) == "direct")
	case "bind":
		if err := r.say(c, "Q", "SET fence.token='"+map[bool]string{true: r.token, false: "[token]"}[r.proxy]+"'"); err != nil {
			return err
		}
		c.flush()
		_, err := c.await('Z', 1)
		return err
	case "await":
		c.flush()
		_, err := c.await(arg(0)[0], max(1, atoi(arg(1))))
		return err
	case "end":
		c.flush()
		if c.end(); c.closed() == open {
			return errLate
		}
	case "fin":
		c.flush()
		return c.c.(interface{ CloseWrite() error }).CloseWrite()
	case "on":
		c.flush()
		return r.on(arg(0))
	case "busy":
		return r.busy(ctx, arg(0))
	case "terminate":
		c.flush()
		return r.super(ctx, "SELECT pg_terminate_backend($1)", int((&reader{b: r.key(arg(0))}).u32()))
	case "notify":
		c.flush()
		return r.super(ctx, "SELECT pg_notify($1, $2)", arg(0), arg(1))
	case "cancel":
		return r.cancel(arg(0), arg(1))
	default:
		return errors.New("not a command")
	}
	return nil
}

// start sends a start-up packet as this kind of session sends it to this place.
func (r *run) start(version string, params []string) error {
	major, minor, _ := strings.Cut(version, ".")
	list := [][2]string{{"user", "app"}, {"database", "app"}}
	for _, p := range params {
		name, value, _ := strings.Cut(p, "=")
		switch name {
		case "user":
			r.user = value
			list[0][1] = value
		case "database":
			list[1][1] = value
		default:
			list = append(list, [2]string{name, value})
		}
	}
	switch {
	case r.proxy && r.as == "leader":
		list = append(list, [2]string{"fence.token", r.token})
	case !r.proxy && r.as == "reader":
		at := -1
		for i, p := range list {
			if p[0] == "options" {
				at = i
			}
		}
		if at < 0 {
			list = append(list, [2]string{"options", options})
		} else {
			list[at][1] += " " + options
		}
	}
	r.send(r.now, startPacket(uint32(atoi(major)<<16|atoi(minor)), list))
	return nil
}

func (r *run) super(ctx context.Context, sql string, args ...any) error {
	_, err := r.admin.Exec(ctx, sql, args...)
	return err
}

// busy waits until the connection's server process runs a statement.
func (r *run) busy(ctx context.Context, name string) error {
	key := r.key(name)
	if len(key) < 4 {
		return errors.New("no key")
	}
	r.now.flush()
	pid := int((&reader{b: key}).u32())
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		var busy bool
		err := r.admin.QueryRow(ctx, "SELECT state = 'active' AND wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $1", pid).Scan(&busy)
		if busy || err != nil {
			return err
		}
	}
	return errors.New("it does nothing")
}

// key is a connection's BackendKeyData.
func (c *conn) key() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.got {
		if m.typ == 'K' {
			return m.body
		}
	}
	return nil
}

func (r *run) key(name string) []byte {
	for _, c := range r.side.conns {
		if c.name == name {
			return c.key()
		}
	}
	return nil
}

// cancel sends a CancelRequest and waits until the other side has closed; what came is
// compared as a connection's.
func (r *run) cancel(name, how string) error {
	key := append([]byte(nil), r.key(name)...)
	if len(key) < 8 {
		return errors.New("no key")
	}
	back := r.now
	defer func() { r.now = back }()
	if err := r.on(fmt.Sprintf("cancel %d", len(r.side.conns))); err != nil {
		return err
	}
	switch how {
	case "ssl", "gss":
		if err := r.now.encryption(how); err != nil {
			return err
		}
	case "tls":
		if err := r.now.tls(r.roots, false); err != nil {
			return err
		}
	case "wrong":
		key[len(key)-1] ^= 1
	case "long":
		key = append(key, 1)
	case "short":
		key = key[:len(key)-1]
	}
	r.send(r.now, append(append(be32(8+len(key)), 4, 210, 22, 46), key...))
	r.now.flush()
	r.now.end()
	return nil
}
