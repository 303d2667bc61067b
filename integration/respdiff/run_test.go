package respdiff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A place is where scripts are run: the server itself, or the proxy before it.
type place struct {
	addr  string
	proxy bool
	super *redis.Client // straight to the server
	user  string        // what follows a user name: the credential
	token string        // the live one
}

// A run is one script being followed.
type run struct {
	place
	as, proto string
	joined    bool // all commands up to a wait in one packet
	side      *side
	now       *conn
}

// A side is all that one run of a script got back.
type side struct {
	conns   []*conn
	refused map[string]int // first words of the proxy's that are expected
	data    string         // what the database held afterwards
	failed  string         // why the script could not be followed
}

// clear empties the server but for the fences.
func (p place) clear(ctx context.Context) error {
	_, err := p.super.Pipelined(ctx, func(q redis.Pipeliner) error {
		q.Do(ctx, "EVAL", `for _, k in ipairs(redis.call('KEYS', '*')) do if k:sub(1, 11) ~= 'fenceproxy:' then redis.call('DEL', k) end end return 1`, 0)
		for _, db := range []int{1, 2} {
			q.Do(ctx, "SELECT", db)
			q.Do(ctx, "FLUSHDB")
		}
		q.Do(ctx, "SELECT", 0)
		q.Do(ctx, "FUNCTION", "FLUSH")
		q.Do(ctx, "SCRIPT", "FLUSH")
		q.Do(ctx, "CONFIG", "RESETSTAT")
		q.Do(ctx, "SLOWLOG", "RESET")
		q.Do(ctx, "LATENCY", "RESET")
		q.Do(ctx, "ACL", "LOG", "RESET")
		q.Do(ctx, "ACL", "SETUSER", "default", "nopass")
		q.Do(ctx, "ACL", "DELUSER", "app", "off")
		return nil
	})
	return err
}

// data is what the databases hold, but for the fences.
func (p place) data(ctx context.Context) (string, error) {
	var all []string
	for _, db := range []int{1, 0} {
		if err := p.super.Do(ctx, "SELECT", db).Err(); err != nil {
			return "", err
		}
		keys, err := p.super.Keys(ctx, "*").Result()
		if err != nil {
			return "", err
		}
		for _, k := range sorted(keys) {
			if strings.HasPrefix(k, "fenceproxy:") {
				continue
			}
			d, err := p.super.Do(ctx, "DEBUG", "DIGEST-VALUE", k).StringSlice()
			if err != nil {
				return "", err
			}
			all = append(all, fmt.Sprintf("%d/%.40q %.12s", db, k, d[0]))
		}
	}
	return strings.Join(all, ", "), nil
}

// follow runs a script and returns what came back.
func (p place) follow(ctx context.Context, s *script, as, proto, mode string) (*side, error) {
	if err := p.clear(ctx); err != nil {
		return nil, fmt.Errorf("clearing: %w", err)
	}
	r := &run{place: p, as: as, proto: proto, joined: mode == "joined", side: &side{refused: make(map[string]int)}}
	defer func() {
		for _, c := range r.side.conns {
			c.mu.Lock()
			c.left = c.closed() != open
			c.mu.Unlock()
			c.close()
		}
	}()
	for _, cmd := range s.setup {
		if err := r.order(ctx, cmd); err != nil {
			return nil, fmt.Errorf("setup: %w", err)
		}
	}
	err := r.on("a")
	for _, st := range s.steps {
		if err != nil {
			break
		}
		if err = r.step(ctx, st); err != nil {
			err = fmt.Errorf("%s: %w", st.line, err)
		}
	}
	for _, c := range r.side.conns {
		if err == nil {
			err = c.goodbye()
		}
	}
	if err != nil {
		r.side.failed = err.Error()
	}
	r.side.data, err = p.data(ctx)
	return r.side, err
}

// goodbye waits until all has come that was asked for.
func (c *conn) goodbye() error {
	if c.isOver() {
		return nil
	}
	c.pending = append(c.pending, command("ECHO", "the-end")...)
	c.flush()
	_, err := c.await(1, func(b []byte) bool {
		return bytes.Contains(b, []byte("\r\nthe-end\r\n")) || bytes.Contains(b, []byte("-ERR Can't execute 'echo'"))
	})
	return err
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
	if r.as == "leader" {
		if err := r.own("FENCE", "BIND", r.token); err != nil {
			return err
		}
	}
	if r.proto != "0" {
		r.send(command("HELLO", r.proto))
		c.flush()
		_, err = c.await(1, whichever)
	}
	return err
}

// own sends a command of the proxy's, which must say yes.
func (r *run) own(cmd ...string) error {
	if !r.proxy {
		return nil
	}
	c := r.now
	c.flush()
	c.pending = append(c.pending, command(cmd...)...)
	c.flush()
	// No refusal among what is still owed can be mistaken for it: scripts await that first.
	b, err := c.await(1, func(b []byte) bool { return b[0] != '>' })
	if err != nil {
		return err
	}
	if string(b) != "+OK\r\n" {
		return fmt.Errorf("%s: %s", cmd[1], show(b))
	}
	c.forget()
	return nil
}

// send sends bytes now, or with what follows.
func (r *run) send(b []byte) {
	r.now.pending = append(r.now.pending, b...)
	if !r.joined {
		r.now.flush()
	}
}

// order is the superuser's command.
func (r *run) order(ctx context.Context, cmd []string) error {
	return r.super.Do(ctx, anys(cmd)...).Err()
}

func anys(s []string) []any {
	a := make([]any, len(s))
	for i := range s {
		a[i] = s[i]
	}
	return a
}

// filled writes out what a run knows.
func (r *run) filled(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		for _, c := range r.side.conns {
			a = strings.ReplaceAll(a, "{{id "+c.name+"}}", c.id)
		}
		if before, rest, ok := strings.Cut(a, "{{user "); ok {
			name, after, _ := strings.Cut(rest, "}}")
			if r.proxy {
				name += r.user
			} else if name == "" {
				name = "default"
			}
			a = before + name + after
		}
		out[i] = a
	}
	return out
}

// noCommand is what the server itself refuses in the place of what the proxy refuses.
const noCommand = "no-such-command"

func (r *run) step(ctx context.Context, st step) error {
	c, args := r.now, r.filled(st.args)
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch st.verb {
	case ">":
		r.send(command(args...))
	case "inline":
		r.send([]byte(st.rest + "\r\n"))
	case "raw":
		r.send([]byte(strings.Join(args, "")))
	case "refused":
		r.side.refused[arg(0)]++
		if r.proxy {
			r.send(command(args[1:]...))
		} else {
			r.send(command(noCommand))
		}
	case "bind":
		return r.own("FENCE", "BIND", r.token)
	case "unbind":
		return r.own("FENCE", "UNBIND")
	case "await":
		n, _ := strconv.Atoi(arg(0))
		c.flush()
		_, err := c.await(max(1, n), whichever)
		return err
	case "until":
		c.flush()
		_, err := c.await(1, holding(st.rest))
		return err
	case "end":
		c.flush()
		return c.end()
	case "fin":
		c.flush()
		return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
	case "on":
		c.flush()
		return r.on(arg(0))
	case "id":
		c.pending = append(c.pending, command("CLIENT", "ID")...)
		c.flush()
		b, err := c.await(1, func(b []byte) bool { return b[0] == ':' })
		c.id = strings.Trim(string(b), ":\r\n")
		if err == nil {
			c.forget()
		}
		return err
	case "blocked":
		c.flush()
		return r.poll(ctx, []string{"INFO", "clients"}, "blocked_clients:"+arg(0)+"\r")
	case "super":
		c.flush()
		return r.order(ctx, args)
	case "wait":
		c.flush()
		i := len(args) - 2
		return r.poll(ctx, args[:i], args[i+1])
	default:
		return errors.New("not a command")
	}
	return nil
}

// poll repeats the superuser's command until its reply holds the text.
func (r *run) poll(ctx context.Context, cmd []string, text string) error {
	for end := time.Now().Add(patience); ; {
		v, err := r.super.Do(ctx, anys(cmd)...).Result()
		if err != nil {
			return err
		}
		if strings.Contains(fmt.Sprint(v), text) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("it still is %v", v)
		}
	}
}
