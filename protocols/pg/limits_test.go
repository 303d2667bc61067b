package pg

import (
	"bytes"
	"encoding/binary"
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

// A text that takes long to be judged is judged by the shell, for both kinds of session, and its
// verdict is for no other text.
func TestLongTextsAreJudgedByTheShell(t *testing.T) {
	write := "INSERT INTO t VALUES ('" + strings.Repeat("x", quickText) + "')"
	read := "SELECT 1 AS reads, '" + strings.Repeat("x", len(write)-len("SELECT 1 AS reads, ''")) + "'"
	d := loggedIn()
	d.c.maxInspect = DefaultMaxInspect
	st := d.c.client(appendQuery(nil, read))
	if st.next != judge || st.pass != 0 || string(st.text) != read {
		t.Fatalf("%+.40v", st)
	}
	d.c.inform(st.text, d.c.sql.Inspect(st.text), nil)
	if st := d.c.client(appendQuery(nil, write)); st.next != judge || st.pass != 0 {
		t.Errorf("the verdict on another text counts: %+.40v", st)
	}
	d.client(appendQuery(nil, read))
	if d.judged != 0 || !bytes.Contains(d.up, []byte(read)) {
		t.Errorf("judged %d times more", d.judged)
	}
	if d.c.judged.text != "" {
		t.Error("a text is kept")
	}

	d = leading()
	d.c.maxInspect = DefaultMaxInspect
	d.client(appendQuery(nil, write))
	if d.judged != 0 {
		t.Error("a text without any of the words was judged")
	}
	d.client(appendQuery(nil, write+" -- discard"))
	if d.judged != 1 || !bytes.Contains(d.up, []byte("discard")) {
		t.Errorf("judged %d times", d.judged)
	}
}

// The beginning of a text that is too long to be looked through tells whether it sets a token.
func TestLongTextDoesNotSetATokenUpstream(t *testing.T) {
	for _, typ := range []string{"Q", `P ""`} {
		d := leading()
		d.c.prepared = false // where it is true every text of the kind is refused
		d.client(messages(t, typ+` "SET fence.token = '`+testToken+`' -- `+strings.Repeat("x", DefaultMaxInspect)+`"`))
		if bytes.Contains(d.up, []byte(testToken)) || !bytes.Contains(d.up, []byte(markerPrefix)) {
			t.Errorf("upstream %.100q", d.up)
		}
	}
}

// Before AuthenticationOk a client's message is no longer than the server takes there, and
// nothing of a longer one goes upstream.
func TestLongMessageBeforeAuthentication(t *testing.T) {
	for n, passes := range map[uint32]bool{maxAuthMessage: true, maxAuthMessage + 1: false, 1 << 30: false, 1 << 31: false, 3: false} {
		d := newDriver()
		d.server([]byte("R\x00\x00\x00\x08\x00\x00\x00\x03"))
		d.client(append(binary.BigEndian.AppendUint32([]byte{'p'}, n), "password"...))
		if got := len(d.up) == 5+len("password"); got != passes || !passes && len(d.up) > 5 {
			t.Errorf("length %d: %q went upstream", n, d.up)
		}
	}
}
