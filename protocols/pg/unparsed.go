package pg

import (
	"bytes"

	"github.com/fenceproxy/fenceproxy/policy"
)

// unparsed returns what stands for a text that the parser cannot read: the text, and behind it
// the marker as a statement of its own. A server reads the whole text before it runs any of it,
// and no statement begins with a name: so nothing of it runs. Where the text itself holds a
// syntax error, the server says so in its own words and place; where the server could have read it,
// or the marker ends up in a quote or comment that does not end, the error names the marker.
//
// It reports false for what must not reach the server in any form, for it may be a token.
func (c *core) unparsed(text []byte) ([]byte, bool) {
	if c.replication {
		return nil, false // its own grammar is another
	}
	lower := bytes.ToLower(text)
	for _, word := range [][]byte{[]byte("fence"), []byte("token"), []byte("u&")} {
		if bytes.Contains(lower, word) {
			return nil, false
		}
	}
	// The line ends a comment, and a character that is cut off.
	out := append(bytes.Clone(text), "\n;"...)
	return append(out, c.marker(code(policy.SQLUnparsed), "")...), true
}
