package respdiff

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A script is one history. Its lines are:
//
//	# text                      a comment
//	as leader reader late       which sessions do this; late ones bind at the command bind
//	proto 2 3                   in which protocols; 0 leaves HELLO to the script
//	servers redis7 valkey8      only these
//	modes written joined bytes  only these
//	setup command               run before, by the superuser
//	unpinned text               the answer is not the same of each server process, and why:
//	                            it is compared, but not pinned
//
//	> command                   a command, in bulks
//	inline text                 a line, as it is
//	raw "bytes"                 bytes
//	refused WORD command        a command that the proxy refuses with that first word; to the
//	                            server itself goes one that it does not know
//	bind, unbind                FENCE BIND and UNBIND, which the server itself does not see
//	await [n]                   wait for n more replies
//	until text                  wait for a reply that holds the text
//	end                         wait for the other side's close
//	fin                         close the sending side
//	on NAME                     go on with another connection, opened if need be
//	id                          learn the connection's id
//	blocked n                   wait until n clients are blocked
//	super command               the superuser's command, straight to the server
//	wait command = text         repeat the superuser's command until its reply holds the text
//
// Words in double quotes may hold {{x*1000}}: a thousand times x; {{sha text}}: the script's
// SHA1. {{id NAME}} is a connection's id, {{user NAME}} a user name, through the proxy with a
// credential behind it. What follows "----" is what was answered.
type script struct {
	head    []string // as written, up to the answers
	steps   []step
	as      []string
	protos  []string
	servers []string
	modes   []string
	setup   [][]string
	loose   string            // why answers are not pinned
	answers map[string]string // by key, see answer
}

type step struct {
	line string
	verb string
	rest string
	args []string
}

var allModes = []string{"written", "joined", "bytes"}

func readScript(path string) (*script, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &script{as: []string{"leader"}, protos: []string{"2", "3"}, modes: allModes}
	for _, v := range servers.RedisVersions() {
		s.servers = append(s.servers, v.Name)
	}
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
	case "proto":
		s.protos = strings.Fields(rest)
		return nil
	case "servers":
		s.servers = strings.Fields(rest)
		return nil
	case "modes":
		s.modes = strings.Fields(rest)
		return nil
	case "unpinned":
		s.loose = rest
		return nil
	case "inline", "until":
		s.steps = append(s.steps, step{line: line, verb: verb, rest: rest})
		return nil
	}
	args, err := testenv.CaseWords(rest)
	if err != nil {
		return err
	}
	if verb == "setup" {
		s.setup = append(s.setup, args)
		return nil
	}
	s.steps = append(s.steps, step{line: line, verb: verb, rest: rest, args: args})
	return nil
}

// An answer is the server's to a script of one kind of session in one protocol.
type answer struct{ as, proto, server string }

func (a answer) key() string { return fmt.Sprintf("%s/resp%s/%s", a.as, a.proto, a.server) }

// pinned returns what the file holds for an answer.
func (s *script) pinned(a answer) string {
	for _, key := range []string{a.key(), a.proto, a.server, "all"} {
		switch key {
		case a.proto:
			key = "resp" + key
		}
		if text, ok := s.answers[key]; ok {
			return text
		}
	}
	return ""
}

// write rewrites the file with answers, equal ones together.
func (s *script) write(path string, got map[answer]string) error {
	var all []answer
	for _, as := range s.as {
		for _, proto := range s.protos {
			for _, server := range s.servers {
				all = append(all, answer{as, proto, server})
			}
		}
	}
	var texts []string
	keys := make(map[string][]answer)
	for _, a := range all {
		text, ok := got[a]
		if !ok {
			if text = s.pinned(a); text == "" { // not run now: what was there stays
				continue
			}
		}
		if keys[text] == nil {
			texts = append(texts, text)
		}
		keys[text] = append(keys[text], a)
	}
	var b strings.Builder
	b.WriteString(strings.TrimRight(strings.Join(s.head, "\n"), "\n") + "\n")
	if s.loose != "" {
		texts = nil
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "---- %s\n%s", strings.Join(s.name(keys[text], all), " "), text)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// name names a group of answers shortly.
func (s *script) name(group, all []answer) []string {
	if len(group) == len(all) {
		return []string{"all"}
	}
	for _, by := range []func(answer) string{
		func(a answer) string { return "resp" + a.proto },
		func(a answer) string { return a.server },
	} {
		var names []string
		for _, a := range all {
			if !slices.Contains(names, by(a)) && !slices.ContainsFunc(all, func(x answer) bool { return by(x) == by(a) && !slices.Contains(group, x) }) {
				names = append(names, by(a))
			}
		}
		covered := func(a answer) bool { return slices.Contains(names, by(a)) }
		if !slices.ContainsFunc(group, func(a answer) bool { return !covered(a) }) {
			return names
		}
	}
	var names []string
	for _, a := range group {
		names = append(names, a.key())
	}
	return names
}
