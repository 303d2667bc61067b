package resp

import "strings"

// A Reply is built up to one whole reply, in the protocol of the session: what RESP2 has no
// type for is written as clients of RESP2 expect it.
type Reply struct {
	proto int
	b     []byte
}

// Proto is the session's protocol, 2 or 3.
func (r *Reply) Proto() int { return r.proto }

// Error writes an error. Its first word is for programs; the text is one line.
func (r *Reply) Error(word, text string) { r.b = append(r.b, errorLine(word, text)...) }

// Refuse writes an error whose first word is a code of lower-case words with hyphens between:
// INVALIDTOKEN of invalid-token. The hint may be empty.
func (r *Reply) Refuse(code, message, hint string) {
	text := message + "."
	if hint != "" {
		text += " " + hint
	}
	r.Error(ErrorWord(code), text)
}

// ErrorWord is a code as the first word of an error.
func ErrorWord(code string) string { return strings.ToUpper(strings.ReplaceAll(code, "-", "")) }

// OK writes OK.
func (r *Reply) OK() { r.b = append(r.b, "+OK\r\n"...) }

// Text writes a text.
func (r *Reply) Text(s string) { r.b = appendBulk(r.b, s) }

// Number writes a number.
func (r *Reply) Number(n int64) { r.b = appendNumber(r.b, n) }

// Null writes that there is nothing.
func (r *Reply) Null() {
	if r.proto == 3 {
		r.b = append(r.b, "_\r\n"...)
		return
	}
	r.b = append(r.b, "$-1\r\n"...)
}

// Array begins an array: n elements follow.
func (r *Reply) Array(n int) { r.b = appendHead(r.b, '*', n) }

// Map begins a map: n keys follow, each with its value after it. In RESP2 that is an array.
func (r *Reply) Map(n int) {
	if r.proto == 3 {
		r.b = appendHead(r.b, '%', n)
		return
	}
	r.Array(2 * n)
}
