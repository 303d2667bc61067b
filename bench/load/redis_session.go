package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Keys of the sessions: a prefix and a number of twelve digits.
const (
	redisPrefix = "fenceproxy-bench:"
	redisKeys   = 100000
	redisValue  = 64 // bytes
	redisLarge  = 1 << 20
)

// redisDial connects to a target, says who it is, and selects its database.
func redisDial(ctx context.Context, t *Target) (*redisSession, error) {
	o, err := redis.ParseURL(t.URL)
	if err != nil {
		return nil, fmt.Errorf("target %s: its URL is not one of Redis", t.Name) // the text may hold a password
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d interface {
		DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	} = new(net.Dialer)
	if o.TLSConfig != nil {
		d = &tls.Dialer{Config: o.TLSConfig}
	}
	c, err := d.DialContext(ctx, o.Network, o.Addr)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	s, err := newStream(c)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	r := &redisSession{stream: s, buf: make([]byte, 16<<10)}
	if err := r.begin(t, o); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("target %s: %w", t.Name, err)
	}
	return r, nil
}

// begin sends AUTH and SELECT as far as they are needed.
func (r *redisSession) begin(t *Target, o *redis.Options) error {
	user, password := o.Username, o.Password
	if t.Fenced() {
		user += ";election=" + t.Election + ";token=" + t.Token.Reveal()
		if password == "" {
			password = "none" // a server without one takes any
		}
	}
	var b []byte
	n := 0
	switch {
	case user != "":
		b, n = command(b, "AUTH", user, password), n+1
	case password != "":
		b, n = command(b, "AUTH", password), n+1
	}
	if o.DB != 0 {
		b, n = command(b, "SELECT", strconv.Itoa(o.DB)), n+1
	}
	if n == 0 {
		return nil
	}
	return r.ask(b, n)
}

// bound asks whether the session is.
func (r *redisSession) bound() error {
	if _, err := r.stream.Write(command(nil, "FENCE", "STATUS")); err != nil {
		return err
	}
	text, err := r.answers(1)
	if err != nil {
		return fmt.Errorf("%w (%w)", errNotBound, err)
	}
	if !bytes.Contains(text, []byte("\r\nbound\r\n")) {
		return errNotBound
	}
	return nil
}

// A redisSession makes requests of prepared bytes.
type redisSession struct {
	stream stream
	buf    []byte
	have   int
	// next writes the next request, and says how many replies answer it.
	next func() (request []byte, replies int)
}

func openRedis(ctx context.Context, t *Target) (*redisSession, error) {
	r, err := redisDial(ctx, t)
	if err != nil {
		return nil, err
	}
	if t.Fenced() {
		if err := r.bound(); err != nil {
			r.close()
			return nil, fmt.Errorf("target %s: %w", t.Name, err)
		}
	}
	return r, nil
}

func (r *redisSession) do() error { return r.ask(r.next()) }

func (r *redisSession) ask(request []byte, replies int) error {
	if _, err := r.stream.Write(request); err != nil {
		return err
	}
	_, err := r.answers(replies)
	return err
}

func (r *redisSession) interrupt() { r.stream.interrupt() }
func (r *redisSession) close()     { _ = r.stream.Close() }

// answers reads n replies, and returns them, valid until the next call. An error reply is
// an error.
func (r *redisSession) answers(n int) ([]byte, error) {
	at := 0
	for {
		for n > 0 {
			size, err := replySize(r.buf[at:r.have])
			if err != nil {
				return nil, err
			}
			if size == 0 {
				break
			}
			if r.buf[at] == '-' {
				return nil, &refusedError{string(r.buf[at+1 : at+size-2])}
			}
			at += size
			n--
		}
		if n == 0 {
			if at != r.have {
				return nil, errors.New("a reply that nobody asked for")
			}
			r.have = 0
			return r.buf[:at], nil
		}
		if r.have == len(r.buf) {
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
		got, err := r.stream.Read(r.buf[r.have:])
		if err != nil {
			return nil, err
		}
		r.have += got
	}
}

// replySize is the length of the RESP2 reply that b begins with, zero where it is not
// whole.
func replySize(b []byte) (int, error) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 {
		return 0, nil
	}
	size := end + 1
	switch b[0] {
	case '+', '-', ':':
		return size, nil
	case '$', '*':
	default:
		return 0, fmt.Errorf("a reply that begins with %q", b[0])
	}
	n, err := strconv.Atoi(string(b[1 : end-1]))
	if err != nil {
		return 0, fmt.Errorf("a reply of a length that is no number: %w", err)
	}
	if b[0] == '$' {
		if n >= 0 {
			size += n + 2
		}
		if len(b) < size {
			return 0, nil
		}
		return size, nil
	}
	for range max(n, 0) {
		part, err := replySize(b[size:])
		if part == 0 || err != nil {
			return 0, err
		}
		size += part
	}
	return size, nil
}

// command appends a command.
func command(b []byte, words ...string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(words)), 10)
	for _, w := range words {
		b = append(b, "\r\n$"...)
		b = strconv.AppendInt(b, int64(len(w)), 10)
		b = append(b, "\r\n"...)
		b = append(b, w...)
	}
	return append(b, "\r\n"...)
}

// randomKeys makes requests of the commands, each with a random key in the place of its
// second word.
func (r *redisSession) randomKeys(commands ...[]string) {
	var b []byte
	var at []int
	for _, words := range commands {
		start := len(b)
		words[1] = redisPrefix + fmt.Sprintf("%012d", 0)
		b = command(b, words...)
		at = append(at, start+bytes.Index(b[start:], []byte(redisPrefix))+len(redisPrefix))
	}
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // which row is no secret
	r.next = func() ([]byte, int) {
		for _, i := range at {
			digits(b[i:i+12], random.IntN(redisKeys))
		}
		return b, len(at)
	}
}

// digits writes a number into b, with zeros in front.
func digits(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = '0' + byte(n%10)
		n /= 10
	}
}
