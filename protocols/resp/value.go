package resp

import (
	"bytes"
	"strconv"
)

// maxDepth is deeper than any reply that is understood here.
const maxDepth = 8

// A value is a reply, RESP2 or RESP3, that must be understood and sent on changed. What is
// not changed is encoded as it came.
type value struct {
	kind  byte
	null  bool
	text  []byte  // of a line or a bulk
	items []value // of an aggregate; of a map, keys and values in turn
}

// parseValue reads the value at the front of b. Its bytes are b's.
func parseValue(b []byte) (v value, rest []byte, ok bool) { return parseNested(b, 0) }

func parseNested(b []byte, depth int) (v value, rest []byte, ok bool) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 || depth > maxDepth {
		return v, nil, false
	}
	v.kind = b[0]
	line, rest := b[1:end], b[end+2:]
	switch v.kind {
	case '+', '-', ':', '_', ',', '#', '(':
		v.text = line
		return v, rest, true
	case '$', '=', '*', '%', '~':
	default:
		return v, nil, false
	}
	n, ok := parseLen(line)
	switch {
	case !ok || n < -1 || n > int64(len(b)):
		return v, nil, false
	case n == -1:
		v.null = true
		return v, rest, true
	case v.kind == '$' || v.kind == '=':
		if int64(len(rest)) < n+2 {
			return v, nil, false
		}
		v.text = rest[:n:n]
		return v, rest[n+2:], true
	case v.kind == '%':
		n *= 2
	}
	// An element takes three bytes at least: no more are allocated than b can hold.
	v.items = make([]value, 0, min(n, int64(len(rest)/3)))
	for range n {
		var item value
		if item, rest, ok = parseNested(rest, depth+1); !ok {
			return v, nil, false
		}
		v.items = append(v.items, item)
	}
	return v, rest, true
}

func (v *value) append(b []byte) []byte {
	switch v.kind {
	case '$', '=', '*', '%', '~':
	default:
		b = append(append(b, v.kind), v.text...)
		return append(b, '\r', '\n')
	}
	switch {
	case v.null:
		return appendHead(b, v.kind, -1)
	case v.kind == '$' || v.kind == '=':
		b = append(appendHead(b, v.kind, len(v.text)), v.text...)
		return append(b, '\r', '\n')
	case v.kind == '%':
		b = appendHead(b, v.kind, len(v.items)/2)
	default:
		b = appendHead(b, v.kind, len(v.items))
	}
	for i := range v.items {
		b = v.items[i].append(b)
	}
	return b
}

// setText makes v a bulk.
func (v *value) setText(s string) { *v = value{kind: '$', text: []byte(s)} }

// setNumber makes v a number.
func (v *value) setNumber(n int) { *v = value{kind: ':', text: strconv.AppendInt(nil, int64(n), 10)} }

// field returns the value of a key of a map, or of pairs in an array.
func (v *value) field(key string) *value {
	for i := 0; i+1 < len(v.items); i += 2 {
		if string(v.items[i].text) == key {
			return &v.items[i+1]
		}
	}
	return nil
}
