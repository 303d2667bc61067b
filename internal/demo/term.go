package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// width is how wide the demo's text is.
const width = 84

// A term writes the demo's story: for a terminal in colour and with progress, for a
// file or a pipe as plain lines.
type term struct {
	out io.Writer
	// color allows colours, live that a line is rewritten, plain forbids all but ASCII.
	color, live, plain bool

	// ticking is whose line of ticks is unfinished; column is where it has come to.
	ticking string
	column  int
	// progress is set while a progress line is on the screen.
	progress bool
	frame    int
}

// The colours.
const (
	red     = "31;1"
	green   = "32;1"
	yellow  = "33"
	cyan    = "36;1"
	magenta = "35;1"
	bold    = "1"
	dim     = "2"
)

func (t *term) paint(code, s string) string {
	if !t.color || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// pick is s, or its substitute where only ASCII will do.
func (t *term) pick(s, ascii string) string {
	if t.plain {
		return ascii
	}
	return s
}

// end finishes an unfinished line.
func (t *term) end() {
	if t.progress {
		fmt.Fprint(t.out, "\r\x1b[K")
		t.progress = false
	}
	if t.ticking != "" {
		fmt.Fprintln(t.out)
		t.ticking = ""
	}
}

func (t *term) line(s string) {
	t.end()
	fmt.Fprintln(t.out, s)
}

func (t *term) blank() { t.line("") }

// title begins a half.
func (t *term) title(s string) {
	t.blank()
	rule := t.pick("━", "=")
	t.line(t.paint(bold, rule+rule+" "+s+" "+strings.Repeat(rule, max(2, width-4-utf8.RuneCountInString(s)))))
}

// chapter begins an act.
func (t *term) chapter(s, detail string) {
	t.blank()
	t.line(" " + t.paint(bold, s))
	if detail != "" {
		t.line(" " + t.paint(dim, detail))
	}
	t.blank()
}

// narrate tells what the demo itself does.
func (t *term) narrate(s string) {
	for i, l := range wrap(s, width-6) {
		mark := "  "
		if i == 0 {
			mark = t.pick("▸ ", "> ")
		}
		t.line(" " + t.paint(yellow, mark+l))
	}
}

// who is a worker's name in its colour, as a line begins with it.
func (t *term) who(worker string) string {
	code := cyan
	if worker == "B" {
		code = magenta
	}
	return "   " + t.paint(code, worker) + "  "
}

// say tells what a worker does.
func (t *term) say(worker, s string) { t.line(t.who(worker) + s) }

// quote shows what a program was told, line by line.
func (t *term) quote(code, s string) {
	bar := t.pick("│ ", "| ")
	for part := range strings.SplitSeq(s, "\n") {
		for _, l := range wrap(part, width-12) {
			t.line("        " + t.paint(dim, bar) + t.paint(code, l))
		}
	}
}

// tick shows one write of a worker.
func (t *term) tick(worker string) {
	if t.ticking != worker || t.column > width-4 {
		t.end()
		fmt.Fprint(t.out, t.who(worker)+"writes")
		t.ticking, t.column = worker, 12
	}
	code := cyan
	if worker == "B" {
		code = magenta
	}
	fmt.Fprint(t.out, " "+t.paint(code, t.pick("●", "*")))
	t.column += 2
}

// waiting shows that time passes, where the screen can be rewritten.
func (t *term) waiting(what string, since time.Time) {
	if !t.live || t.ticking != "" {
		return
	}
	frames := []rune(t.pick("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", `|/-\`))
	t.frame++
	fmt.Fprintf(t.out, "\r\x1b[K   %s  %s", t.paint(yellow, string(frames[t.frame%len(frames)])),
		t.paint(dim, fmt.Sprintf("%s  %.1f s", what, time.Since(since).Seconds())))
	t.progress = true
}

// verdict ends an act.
func (t *term) verdict(ok bool, s string) {
	mark, code := t.pick("✔", "OK:"), green
	if !ok {
		mark, code = t.pick("✘", "BAD:"), red
	}
	t.blank()
	for i, l := range wrap(s, width-6) {
		if i > 0 {
			mark = strings.Repeat(" ", utf8.RuneCountInString(mark))
		}
		t.line(" " + t.paint(code, mark+" "+l))
	}
}

// wrap breaks s at spaces into lines of at most n characters; a longer word has a
// line of its own.
func wrap(s string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > n:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
