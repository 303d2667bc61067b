package pgdiff

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A script is one case. Its lines are:
//
//	# text                      a comment
//	as leader reader            which sessions do this; late ones bind at the command bind
//	setup SQL                   run before, by the superuser
//	versions 17 18              only these
//	modes written joined bytes  only these
//	differs text                the proxy's answer differs on purpose, and why
//	loose text                  the server's answer is not always the same, and why: not pinned
//	with tls                    with TLS on both legs, which this side may ask for
//	settings                    pin what is reported at start-up, too
//
//	login [name=value …]        a start-up packet, and await Z
//	start V [name=value …]      a start-up packet of protocol version V, such as 3.2
//	ssl, gss                    a request for encryption, and await its answer
//	hasty ssl|gss               one that does not wait for its answer
//	tls [direct]                TLS, after a request for it or at once
//	password text [disable]     answer what the server asks for; with no channel binding
//	bind                        present the token by SET
//	> message                   see encode in message_test.go
//	raw hex                     bytes
//	await T [n]                 wait for the nth next message of type T
//	end                         wait for the other side's close
//	fin                         close the sending side
//	on NAME                     go on with another connection, opened if need be
//	busy NAME                   wait until a connection's server process runs a statement
//	terminate NAME              the superuser ends a connection's server process
//	notify CHANNEL text         the superuser notifies
//	cancel NAME [how]           a CancelRequest on a socket of its own, until that closes; how
//	                            is ssl, gss or tls before it, or a key that is wrong, long or short
//
// Text in double quotes may hold {{x*1000}}: a thousand times x. What follows "----" is
// what was answered.
type script struct {
	head     []string // as written, up to the answers
	steps    []step
	as       []string
	setup    []string
	versions []int
	modes    []string
	differs  string
	loose    string
	settings bool
	tls      bool
	answers  map[string]string // by key, see keys
}

type step struct {
	line string
	verb string
	args []string
}

var allModes = []string{"written", "joined", "bytes"}

func readScript(path string, all []int) (*script, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &script{as: []string{"leader"}, versions: all, modes: allModes}
	if s.head, s.answers, err = testenv.ReadCase(string(b), s.readLine); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *script) readLine(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "", "#":
		return nil
	case "as":
		s.as = strings.Fields(rest)
		return nil
	case "setup":
		s.setup = append(s.setup, rest)
		return nil
	case "versions":
		s.versions = nil
		for _, f := range strings.Fields(rest) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return err
			}
			s.versions = append(s.versions, n)
		}
		return nil
	case "modes":
		s.modes = strings.Fields(rest)
		return nil
	case "differs":
		s.differs = rest
		return nil
	case "with":
		s.tls = rest == "tls"
		return nil
	case "settings":
		s.settings = true
		return nil
	case "loose":
		s.loose = rest
		return nil
	}
	args, err := testenv.CaseWords(rest)
	if err != nil {
		return err
	}
	s.steps = append(s.steps, step{line: line, verb: verb, args: args})
	return nil
}

// An answer is one side's answer to a script of one kind of session on one version.
type answer struct {
	as      string
	version int
	proxy   bool
}

func (a answer) key() string {
	k := fmt.Sprintf("%s/%d", a.as, a.version)
	if a.proxy {
		k = "proxy/" + k
	}
	return k
}

// pinned returns what the file holds for an answer.
func (s *script) pinned(a answer) (string, bool) {
	text, ok := s.answers[a.key()]
	if !ok {
		all := "all"
		if a.proxy {
			all = "proxy"
		}
		text, ok = s.answers[all]
	}
	return text, ok
}

// write rewrites the file with answers, equal ones together.
func (s *script) write(path string, got map[answer]string) error {
	var b strings.Builder
	b.WriteString(strings.TrimRight(strings.Join(s.head, "\n"), "\n") + "\n")
	for _, proxy := range []bool{false, true} {
		if proxy && s.differs == "" {
			break
		}
		var groups []*group
		all := 0
		for _, as := range s.as {
			for _, v := range s.versions {
				a := answer{as, v, proxy}
				text, ok := got[a]
				if !ok {
					// Not run now: what was there stays.
					if text, ok = s.pinned(a); !ok {
						continue
					}
				}
				all++
				i := slices.IndexFunc(groups, func(g *group) bool { return g.text == text })
				if i < 0 {
					i = len(groups)
					groups = append(groups, &group{text: text})
				}
				groups[i].keys = append(groups[i].keys, a.key())
			}
		}
		for _, g := range groups {
			if len(g.keys) == all {
				g.keys = []string{map[bool]string{false: "all", true: "proxy"}[proxy]}
			}
			fmt.Fprintf(&b, "---- %s\n%s", strings.Join(g.keys, " "), g.text)
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// A group is an answer that several give.
type group struct {
	keys []string
	text string
}
