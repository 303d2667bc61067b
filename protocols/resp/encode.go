package resp

import (
	"bytes"
	"strconv"
)

// appendCommand appends a command in the form in which clients send it.
func appendCommand(b []byte, args ...string) []byte {
	b = appendHead(b, '*', len(args))
	for _, a := range args {
		b = appendBulk(b, a)
	}
	return b
}

func appendBulk[T string | []byte](b []byte, s T) []byte {
	b = appendHead(b, '$', len(s))
	b = append(b, s...)
	return append(b, '\r', '\n')
}

func appendHead(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, '\r', '\n')
}

// parseLen reads a decimal number as the servers do: no plus sign, no leading zero, no
// space, nothing left over.
func parseLen(b []byte) (int64, bool) {
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 18 || b[0] < '1' || b[0] > '9' {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// equalFold compares b with a lower-case ASCII word as the servers compare names.
func equalFold(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if lower(c) != word[i] {
			return false
		}
	}
	return true
}

// cString is the part of an argument that the servers compare where they look for a word
// of theirs: they stop at a NUL.
func cString(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
