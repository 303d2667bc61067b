package resp

import (
	"bytes"
	"strings"
	"testing"
)

// What takes the place of commands of two bytes is many times as long. It does not pile up,
// and no command is left behind.
func TestSubstitutesDoNotPileUp(t *testing.T) {
	const commands = 1 << 16
	cfg := testConfig()
	cfg.commands = testCommands{"x": nil}
	c := newCore(cfg)
	b := []byte("\n" + strings.Repeat("x\n", commands)) // the pieces end within a command
	got := 0
	for {
		n := c.fromClient(b[:min(len(b), DefaultBuffer)])
		if b = b[n:]; len(c.up) > maxUp+1024 {
			t.Fatalf("%d bytes for the server", len(c.up))
		}
		full := c.full()
		got += bytes.Count(c.up, []byte(":u:"))
		if c.up = c.up[:0]; len(b) == 0 && !full {
			break
		}
	}
	if got != commands {
		t.Errorf("%d of %d commands were answered", got, commands)
	}
}
