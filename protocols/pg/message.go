package pg

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of the server's on what clients send.
const (
	maxStartup = 10004 // with the four bytes of the length itself
	smallMax   = 10000
	largeMax   = 0x3fffffff - 1
)

// frontendLimit is the server's limit on the length field of a client message, zero for
// types that it does not know.
func frontendLimit(typ byte) int {
	switch typ {
	case 'Q', 'P', 'B', 'F', 'd':
		return largeMax
	case 'C', 'D', 'E', 'H', 'S', 'X', 'c', 'f':
		return smallMax
	}
	return 0
}

// header reads a message's type and length field, which counts itself but not the type.
func header(b []byte) (typ byte, n int) {
	return b[0], int(int32(binary.BigEndian.Uint32(b[1:])))
}

// appendMessage appends a message of a type with a body made of strings, each ended
// by a zero byte.
func appendMessage(b []byte, typ byte, strs ...string) []byte {
	n := 4
	for _, s := range strs {
		n += len(s) + 1
	}
	b = append(b, typ)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	for _, s := range strs {
		b = append(b, s...)
		b = append(b, 0)
	}
	return b
}

func appendQuery(b []byte, sql string) []byte { return appendMessage(b, 'Q', sql) }

// appendParse appends a Parse without parameter types.
func appendParse(b []byte, name, sql string) []byte {
	b = append(b, 'P')
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(name)+1+len(sql)+1+2))
	b = append(append(b, name...), 0)
	b = append(append(b, sql...), 0)
	return append(b, 0, 0)
}

// A report is what an ErrorResponse or NoticeResponse says.
type report struct {
	severity string // ERROR, FATAL or WARNING
	code     string // SQLSTATE
	message  string
	detail   string
	hint     string
}

// append appends the report as a message: NoticeResponse for a WARNING.
func (r report) append(b []byte) []byte {
	typ := byte('E')
	if r.severity == "WARNING" {
		typ = 'N'
	}
	fields := []string{"S" + r.severity, "V" + r.severity, "C" + r.code, "M" + ascii(r.message)}
	if r.detail != "" {
		fields = append(fields, "D"+ascii(r.detail))
	}
	if r.hint != "" {
		fields = append(fields, "H"+ascii(r.hint))
	}
	return appendMessage(b, typ, append(fields, "")...)
}

// ascii escapes what is not printable ASCII, as the client may have any encoding.
func ascii(s string) string {
	plain := func(r rune) bool { return ' ' <= r && r <= '~' || r == '\n' }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case plain(r):
			b.WriteRune(r)
		case r == utf8.RuneError && s[i] != 0xef: // a byte that begins no character
			fmt.Fprintf(&b, `\x%02x`, s[i])
		default:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// field returns a field of an ErrorResponse's body.
func field(body []byte, code byte) []byte {
	for len(body) > 0 && body[0] != 0 {
		end := bytes.IndexByte(body, 0)
		if end < 0 {
			return nil
		}
		if body[0] == code {
			return body[1:end]
		}
		body = body[end+1:]
	}
	return nil
}

// cut returns the string at the start of b and what follows its zero byte.
func cut(b []byte) (s, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return nil, nil, false
	}
	return b[:i], b[i+1:], true
}

// malformed returns a Query or Parse without text that is wrong in the way that the one
// with this body is: a string does not end, something is missing, or something follows.
func malformed(typ byte, body []byte) []byte {
	n := 1
	if typ == 'P' {
		n = 2
	}
	rest := body
	for range n {
		var ok bool
		if _, rest, ok = cut(rest); !ok {
			return []byte{typ, 0, 0, 0, 4}
		}
	}
	if typ == 'Q' {
		return []byte{typ, 0, 0, 0, 6, 0, 0}
	}
	if len(rest) < 2 || len(rest) < 2+4*int(binary.BigEndian.Uint16(rest)) {
		return []byte{typ, 0, 0, 0, 6, 0, 0}
	}
	return []byte{typ, 0, 0, 0, 9, 0, 0, 0, 0, 0}
}

// queryText returns the statement of a Query's body.
func queryText(body []byte) (text []byte, ok bool) {
	text, rest, ok := cut(body)
	return text, ok && len(rest) == 0
}

// parseText returns the name and the statement of a Parse's body.
func parseText(body []byte) (name, text []byte, ok bool) {
	name, rest, ok := cut(body)
	if !ok {
		return nil, nil, false
	}
	text, rest, ok = cut(rest)
	if !ok || len(rest) < 2 || len(rest) != 2+4*int(binary.BigEndian.Uint16(rest)) {
		return nil, nil, false
	}
	return name, text, true
}
