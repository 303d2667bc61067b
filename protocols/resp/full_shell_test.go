package resp_test

import (
	"io"
	"strings"
	"testing"
)

func TestShortCommandsWithoutEnd(t *testing.T) {
	w := dial(t, newRig(t, rigOptions{}).addr)
	const commands = 100_000
	go func() { _, _ = io.WriteString(w, "\n"+strings.Repeat("x\n", commands)) }()
	for range commands {
		if s := w.reply(); !strings.HasPrefix(s, "-FENCED ") {
			t.Fatalf("got %q", s)
		}
	}
}
