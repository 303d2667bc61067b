package respdiff

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
)

// replyLen is the length of the reply at the beginning of b, or zero while it is not whole.
// What is no reply is one byte long.
func replyLen(b []byte) int {
	line, _, whole := bytes.Cut(b, []byte("\r\n"))
	if !whole {
		return 0
	}
	at := len(line) + 2
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return at
	case '$', '=', '!':
		n, err := strconv.Atoi(string(line[1:]))
		switch {
		case err != nil:
			return 1
		case n < 0:
			return at
		case at+n+2 > len(b):
			return 0
		}
		return at + n + 2
	case '*', '~', '>', '%', '|':
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil {
			return 1
		}
		switch line[0] {
		case '%':
			n *= 2
		case '|':
			n = 2*n + 1 // with what it is about
		}
		for range n {
			k := replyLen(b[at:])
			if k == 0 {
				return 0
			}
			at += k
		}
		return at
	}
	return 1
}

// show writes a reply for people.
func show(b []byte) string {
	var w strings.Builder
	for len(b) > 0 {
		b = showOne(&w, b)
	}
	return w.String()
}

func showOne(w *strings.Builder, b []byte) (rest []byte) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	if len(line) == 0 {
		fmt.Fprintf(w, "%q", b)
		return nil
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch line[0] {
	case '$', '=', '!':
		kind := strings.TrimPrefix(string(line[:1]), "$")
		if err != nil || n < 0 || n+2 > len(rest) {
			w.WriteString(string(line))
			return rest
		}
		w.WriteString(kind + short(rest[:n]))
		return rest[n+2:]
	case '*', '~', '>', '%', '|':
		if err != nil || n < 0 {
			break
		}
		fmt.Fprintf(w, "%c[", line[0])
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		for i := range n {
			if i > 0 {
				w.WriteByte(' ')
			}
			if len(rest) == 0 {
				break
			}
			rest = showOne(w, rest)
		}
		w.WriteByte(']')
		return rest
	}
	w.WriteString(strings.Trim(strconv.Quote(string(line)), `"`))
	return rest
}

func short(b []byte) string {
	if len(b) <= 200 {
		return strconv.Quote(string(b))
	}
	return fmt.Sprintf("%q… (%d bytes, %.8x)", b[:40], len(b), sha256.Sum256(b))
}

// command makes a command of bulks.
func command(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}
