package testenv

import (
	"fmt"
	"net"
	"strings"
)

// Bytewise is a listener whose connections read one byte at a time: every message comes
// split at every byte.
type Bytewise struct{ net.Listener }

// Accept accepts a connection.
func (l Bytewise) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return ReadBytewise(c)
}

// ReadBytewise makes a TCP connection one that reads one byte at a time.
func ReadBytewise(c net.Conn) (net.Conn, error) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("a %T is no TCP connection", c)
	}
	return bytewise{tcp}, nil
}

type bytewise struct{ *net.TCPConn }

func (c bytewise) Read(b []byte) (int, error) { return c.TCPConn.Read(b[:min(1, len(b))]) }

// ReadCase splits a recorded case into its lines and its answers. An answer follows a line of
// four dashes and the keys that it is for.
func ReadCase(text string, line func(string) error) (head []string, answers map[string]string, err error) {
	answers = make(map[string]string)
	text, rest, _ := strings.Cut(text, "\n----")
	for _, l := range strings.Split(text, "\n") {
		head = append(head, l)
		if err := line(strings.TrimSpace(l)); err != nil {
			return nil, nil, fmt.Errorf("%q: %w", l, err)
		}
	}
	if rest == "" {
		return head, answers, nil
	}
	for _, part := range strings.Split(rest, "\n----") {
		keys, body, _ := strings.Cut(part, "\n")
		for _, key := range strings.Fields(keys) {
			answers[key] = strings.TrimSuffix(body, "\n") + "\n"
		}
	}
	return head, answers, nil
}
