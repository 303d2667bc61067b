package pg

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

var update = flag.Bool("update", false, "rewrite the transcripts under testdata")

// Transcripts are files under testdata. Lines of input begin with
//
//	reader, leader, ruled …, replica, login   how the session starts; first line
//	>  a message of the client's
//	<  a message of the server's; $MARK is the last marker that went upstream
//	!  what the guard answers next (ok, stale), or an event: lost, shutdown
//	!  leads and follows are what becomes of a sidecar listener
//
// and after each of them stands what the core then sent, upstream (^) and to the client (v).
func TestTranscripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.transcript")
	if len(files) == 0 {
		t.Fatal("no transcripts")
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".transcript"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := readScript(string(b))
			got, d := s.play(t, 0, false)
			d.checkInvariants(t)
			if !strings.Contains(file, "bad_") {
				d.checkDecodes(t)
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(b) {
				t.Errorf("differs from %s; got:\n%s", file, got)
			}
			// However the bytes come, the same goes out.
			for _, piece := range []int{1, 2, 3, 7} {
				if other, _ := s.play(t, piece, false); other != got {
					t.Errorf("in pieces of %d:\n%s", piece, other)
				}
			}
			_, joined := s.play(t, 0, true)
			if string(joined.up) != string(d.up) || string(joined.down) != string(d.down) {
				t.Errorf("joined: upstream\n%s\nclient\n%s", show(joined.up, true), show(joined.down, false))
			}
		})
	}
}

type script struct {
	lines []string // comments, and lines of input
	acts  []bool   // whether the server got something after a line
}

func readScript(text string) script {
	var s script
	for _, l := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if n := len(s.acts); n > 0 && strings.HasPrefix(l, "\t^ ") {
			s.acts[n-1] = true
		}
		if !strings.HasPrefix(l, "\t^ ") && !strings.HasPrefix(l, "\tv ") {
			s.lines = append(s.lines, l)
			s.acts = append(s.acts, false)
		}
	}
	return s
}

// play runs the script with the bytes of each message in pieces of a size, zero for
// whole; joined gives neighbouring messages of a side in one.
func (s script) play(t *testing.T, piece int, joined bool) (string, *driver) {
	t.Helper()
	var out strings.Builder
	var d *driver
	up, down := 0, 0
	var pending []byte
	pendingServer := false
	give := func(b []byte, server bool) {
		if server {
			d.server(b)
		} else {
			d.client(b)
		}
	}
	flush := func() {
		if len(pending) > 0 {
			give(pending, pendingServer)
			pending = nil
		}
	}
	for i, l := range s.lines {
		out.WriteString(l + "\n")
		switch {
		case l == "" || l[0] == '#':
			continue
		case l == "reader":
			d = loggedIn()
		case l == "replica":
			d = loggedIn()
			d.c.replication = true
		case l == "leader":
			d = leading()
		case l == "ruled reader":
			d = loggedIn()
			d.c.ruled = &ruling{rules: ordersRules()}
		case l == "ruled leader":
			d = leading()
			d.c.ruled = &ruling{rules: ordersRules()}
		case strings.HasPrefix(l, "login"):
			d = newDriver()
			if strings.Contains(l, "token") {
				d.c.token, _ = election.ParseToken(testToken)
			}
			if strings.Contains(l, "malformed") {
				d.malformed = &guard.Refusal{Reason: guard.InvalidCredential, Election: "orders", Detail: "too short"}
			}
			if strings.Contains(l, "sidecar") {
				d.c.lead = &fakeLead{}
			}
			if strings.Contains(l, "readonly") {
				d.c.wish, d.c.wishAtStart = true, true
			}
			if strings.Contains(l, "proof") {
				d.c.proofs = []string{"7:a0", "9:b1"} // as the shell sets them at a bind
			}
		case l[0] == '!':
			flush()
			switch word := strings.TrimSpace(l[1:]); word {
			case "lost":
				d.c.lost(&guard.Refusal{Reason: guard.Stale, Election: "orders", Held: 7, Rules: 9, Leader: "w2"})
				d.turnServer()
				d.turnClient()
			case "leads", "follows":
				d.c.lead.(*fakeLead).leads = word == "leads"
			case "shutdown":
				d.c.shutdown()
				d.turnServer()
				d.turnClient()
			default:
				d.decisions = append(d.decisions, word)
			}
		case l[0] == '>' || l[0] == '<':
			server := l[0] == '<'
			text := strings.ReplaceAll(l[1:], "$TOKEN", testToken)
			if strings.Contains(text, "$MARK") {
				flush()
				at := strings.LastIndex(string(d.up), d.c.nonce)
				if at < 0 {
					t.Fatalf("%s: no marker went upstream", l)
				}
				mark, _, _ := strings.Cut(string(d.up[at:]), "\x00")
				text = strings.ReplaceAll(text, "$MARK", mark)
			}
			b, err := encode(text, server)
			if err != nil {
				t.Fatalf("%s: %v", l, err)
			}
			switch {
			case joined:
				if server != pendingServer {
					flush()
				}
				pendingServer = server
				pending = append(pending, b...)
				if server && s.acts[i] {
					flush() // what follows may answer what went upstream now
				}
			case piece == 0:
				give(b, server)
			default:
				for len(b) > 0 {
					n := min(piece, len(b))
					give(b[:n], server)
					b = b[n:]
				}
			}
		default:
			t.Fatalf("line %q", l)
		}
		if !joined {
			for _, m := range strings.Split(show(d.up[up:], true), "\n") {
				if m != "" {
					fmt.Fprintf(&out, "\t^ %s\n", m)
				}
			}
			for _, m := range strings.Split(show(d.down[down:], false), "\n") {
				if m != "" {
					fmt.Fprintf(&out, "\tv %s\n", m)
				}
			}
			up, down = len(d.up), len(d.down)
		}
	}
	flush()
	return out.String(), d
}
