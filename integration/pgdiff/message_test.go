package pgdiff

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// encode makes a client's message of a type and its fields:
//
//	Q text; P name text [oid …]; B portal statement [+format …] [value|null …] [-format …]
//	E portal [rows]; D S|P name; C S|P name; F oid [+format …] [value|null …] [-format]
//	d data; f reason; p data; H, S, c, X
func encode(f []string) (out []byte, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("fields are missing")
		}
	}()
	var b []byte
	str := func(s string) { b = append(append(b, s...), 0) }
	u16 := func(n int) { b = binary.BigEndian.AppendUint16(b, uint16(n)) }
	u32 := func(n int) { b = binary.BigEndian.AppendUint32(b, uint32(n)) }
	typ, f := f[0], f[1:]
	switch typ {
	case "Q", "f":
		str(f[0])
	case "P":
		str(f[0])
		str(f[1])
		u16(len(f) - 2)
		for _, oid := range f[2:] {
			u32(atoi(oid))
		}
	case "B":
		str(f[0])
		str(f[1])
		formats, values, results := bound(f[2:])
		u16(len(formats))
		for _, n := range formats {
			u16(n)
		}
		b = appendValues(b, values)
		u16(len(results))
		for _, n := range results {
			u16(n)
		}
	case "F":
		u32(atoi(f[0]))
		formats, values, results := bound(f[1:])
		u16(len(formats))
		for _, n := range formats {
			u16(n)
		}
		b = appendValues(b, values)
		u16(firstOr(results, 0))
	case "E":
		str(f[0])
		u32(atoi(firstOr(f[1:], "0")))
	case "D", "C":
		b = append(b, f[0][0])
		str(f[1])
	case "d", "p":
		b = append(b, f[0]...)
	case "H", "S", "c", "X":
	default:
		return nil, fmt.Errorf("no message type %q", typ)
	}
	out = binary.BigEndian.AppendUint32([]byte{typ[0]}, uint32(4+len(b)))
	return append(out, b...), nil
}

// firstOr only reads: the fields are those of a case, which several runs share.
func firstOr[T any](s []T, or T) T {
	if len(s) == 0 {
		return or
	}
	return s[0]
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

func bound(f []string) (formats []int, values []string, results []int) {
	for _, w := range f {
		switch {
		case strings.HasPrefix(w, "+"):
			formats = append(formats, atoi(w[1:]))
		case strings.HasPrefix(w, "-"):
			results = append(results, atoi(w[1:]))
		default:
			values = append(values, w)
		}
	}
	return formats, values, results
}

func appendValues(b []byte, values []string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		if v == "null" {
			b = binary.BigEndian.AppendUint32(b, 0xffffffff)
			continue
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// startPacket makes a StartupMessage.
func startPacket(version uint32, params [][2]string) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 4), version)
	for _, p := range params {
		b = append(append(b, p[0]...), 0)
		b = append(append(b, p[1]...), 0)
	}
	b = append(b, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// A message is one of the server's, whole; a byte alone is the answer to a request for
// encryption, and type zero is what is no message.
type message struct {
	typ  byte
	body []byte
	bare bool
}

func (m message) String() string {
	if m.bare {
		return fmt.Sprintf("byte %q", m.typ)
	}
	r := &reader{b: m.body}
	var w []string
	add := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	switch m.typ {
	case 0:
		return fmt.Sprintf("no message: %x", m.body)
	case 'R':
		return "R " + authName(r)
	case 'K':
		add("key of %d bytes", len(m.body)-4)
	case 'Z':
		add("%s", m.body)
	case 'T':
		for range r.u16() {
			name := r.str()
			table, column, typ, size, mod, format := r.u32(), r.u16(), r.u32(), r.u16(), r.u32(), r.u16()
			add("%s(%s.%d type %d size %d mod %d format %d)", name, map[bool]string{true: "table"}[table != 0], column, typ, int16(size), int32(mod), format)
		}
	case 'D':
		for range r.u16() {
			if n := int32(r.u32()); n < 0 {
				add("null")
			} else {
				add("%s", short(r.take(int(n))))
			}
		}
	case 't':
		for range r.u16() {
			add("%d", r.u32())
		}
	case 'E', 'N':
		for len(r.b) > 0 && r.b[0] != 0 {
			switch f := r.take(1)[0]; f {
			case 'F', 'L', 'R': // of the server's sources: compared, but not pinned
				r.str()
			default:
				add("%c=%s", f, short([]byte(r.str())))
			}
		}
		r.take(1)
	case 'A':
		add("from %d %q %q", r.u32(), r.str(), r.str())
	case 'G', 'H', 'W':
		add("format %d", r.take(1)[0])
		for range r.u16() {
			add("%d", r.u16())
		}
	case 'v':
		add("%d.%d", r.u16(), r.u16())
		for range r.u32() {
			add("%q", r.str())
		}
	case 'V':
		if n := int32(r.u32()); n < 0 {
			add("null")
		} else {
			add("%s", short(r.take(int(n))))
		}
	case 'd':
		add("%s", short(r.take(len(r.b))))
	default:
		for len(r.b) > 0 {
			add("%q", r.str())
		}
	}
	if (m.typ != 'K' && m.typ != 'Z') && (len(r.b) > 0 || r.bad) {
		add("and more or less: %x", r.b)
	}
	return strings.TrimSpace(string(m.typ) + " " + strings.Join(w, " "))
}

func authName(r *reader) string {
	switch code := r.u32(); code {
	case 0:
		return "ok"
	case 3:
		return "cleartext password"
	case 5:
		return "md5 password"
	case 10:
		return fmt.Sprintf("SASL %q", r.b)
	case 11:
		return fmt.Sprintf("SASL continue %q", r.b)
	case 12:
		return fmt.Sprintf("SASL final %q", r.b)
	default:
		return fmt.Sprint(code)
	}
}

// short shows bytes, long ones by length and hash.
func short(b []byte) string {
	if len(b) > 300 {
		sum := sha256.Sum256(b)
		return fmt.Sprintf("%q… %d bytes, %s", b[:20], len(b), hex.EncodeToString(sum[:6]))
	}
	return strconv.Quote(string(b))
}

// A reader takes fields off a message; past its end they are zero, and it is bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad = true
		n = len(r.b)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u16() int {
	b := r.take(2)
	if len(b) < 2 {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

func (r *reader) u32() uint32 {
	b := r.take(4)
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (r *reader) str() string {
	i := strings.IndexByte(string(r.b), 0)
	if i < 0 {
		r.bad = true
		return string(r.take(len(r.b)))
	}
	s := string(r.b[:i])
	r.b = r.b[i+1:]
	return s
}
