package pg

import (
	"strings"
	"testing"
)

// A reader's long statement is refused unparsed, in step; a leader's goes through.
func TestLongStatements(t *testing.T) {
	text := "SELECT '" + strings.Repeat("x", maxReaderText) + "'"
	reader := loggedIn()
	reader.c.maxInspect = DefaultMaxInspect
	reader.client(appendQuery(nil, text))
	if len(reader.up) > 200 || reader.c.track.state() != willDrain {
		t.Errorf("%d bytes of a reader's long statement went upstream", len(reader.up))
	}
	leader := leading()
	leader.c.maxInspect = DefaultMaxInspect
	leader.client(appendQuery(nil, text))
	if len(leader.up) < len(text) {
		t.Errorf("%d bytes of a leader's long statement went upstream", len(leader.up))
	}
	reader = loggedIn()
	reader.c.maxInspect = DefaultMaxInspect
	reader.client(appendQuery(nil, text[:len(text)-1000]+"'"))
	if len(reader.up) < len(text)-1000 {
		t.Errorf("a reader's statement within the limit was refused: %q", reader.up)
	}
}
