package pgdiff

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// normalisations are all that is allowed to differ between the server and the proxy, or
// from one run to the next. Each changes a message, or reports false to leave it out.
var normalisations = []struct {
	why    string
	change func(*side, message) (message, bool)
}{
	{"each session has a process and a secret of its own; their length is compared", func(_ *side, m message) (message, bool) {
		if m.typ == 'K' {
			m.body = make([]byte, len(m.body))
		}
		return m, true
	}},
	{"a notification names its sender's process; compared is which of the connections that is", func(s *side, m message) (message, bool) {
		if m.typ == 'A' && len(m.body) >= 4 {
			pid := binary.BigEndian.Uint32(m.body)
			at, ok := s.pids[pid]
			if !ok {
				at = 999
			}
			m.body = append(be32(at), m.body[4:]...)
		}
		return m, true
	}},
	{"MD5 and SCRAM send random salts, nonces and proofs; their form is compared", func(_ *side, m message) (message, bool) {
		if m.typ != 'R' || len(m.body) < 4 {
			return m, true
		}
		switch text := string(m.body[4:]); binary.BigEndian.Uint32(m.body) {
		case 5:
			m.body = m.body[:4:4]
		case 11:
			if nonce, salt, rounds, ok := scramFields(text); ok {
				m.body = fmt.Appendf(m.body[:4:4], "nonce of %d bytes, salt of %d, %d rounds", len(nonce), len(salt), rounds)
			}
		case 12:
			if strings.HasPrefix(text, "v=") {
				m.body = fmt.Appendf(m.body[:4:4], "proof of %d bytes", len(text)-2)
			}
		}
		return m, true
	}},
	// A session that will be bound starts read-only, and is made read-write by its bind and
	// again after a DISCARD ALL. Compared is what was reported last.
	{"default_transaction_read_only is the proxy's own tool", func(s *side, m message) (message, bool) {
		name, value, _ := bytes.Cut(m.body, []byte{0})
		if m.typ == 'S' && string(name) == "default_transaction_read_only" {
			s.readOnly = strings.TrimRight(string(value), "\x00")
			return m, false
		}
		return m, true
	}},
}

// sortedReports puts the reports of settings at start-up in order. Since 16 the server
// reports in the order of a hash table, in which the proxy's own settings take places too.
func sortedReports(all []message) []message {
	all = slices.Clone(all)
	for i := range all {
		if all[i].typ != 'S' {
			continue
		}
		end := i
		for end < len(all) && all[end].typ == 'S' {
			end++
		}
		slices.SortFunc(all[i:end], func(a, b message) int { return bytes.Compare(a.body, b.body) })
		break
	}
	return all
}

// pinned is what changes between patch releases of a server, and so is compared but not
// pinned.
func pinned(m message) message {
	name, _, _ := bytes.Cut(m.body, []byte{0})
	if m.typ == 'S' && string(name) == "server_version" {
		m.body = []byte("server_version\x00…\x00")
	}
	return m
}

// A side is all that one run of a script got back.
type side struct {
	conns    []*conn
	pids     map[uint32]int // of the connections
	readOnly string
	rows     string // what the table held afterwards
	failed   string // why the script could not be followed
}

// settle takes the answers of the connections, once all are closed.
func (s *side) settle() {
	s.pids = make(map[uint32]int)
	for i, c := range s.conns {
		if k := c.key(); len(k) > 4 {
			s.pids[binary.BigEndian.Uint32(k)] = i
		}
	}
}

// bytes is what is compared between the server and the proxy.
func (s *side) bytes() string {
	return s.show(true, func(m message) string { return string(m.typ) + string(m.body) })
}

// text is what is pinned: without what a server reports of its settings at start-up, which
// is much and says little.
func (s *side) text(settings bool) string {
	return s.show(settings, func(m message) string { return pinned(m).String() + "\n" })
}

func (s *side) show(settings bool, one func(message) string) string {
	var b strings.Builder
	for _, c := range s.conns {
		s.readOnly = ""
		if len(s.conns) > 1 {
			fmt.Fprintf(&b, "%s:\n", c.name)
		}
		starting := true
	messages:
		for _, m := range sortedReports(c.got) {
			for _, n := range normalisations {
				var keep bool
				if m, keep = n.change(s, m); !keep {
					continue messages
				}
			}
			starting = starting && m.typ != 'Z'
			if settings || !starting || m.typ != 'S' {
				b.WriteString(one(m))
			}
		}
		if s.readOnly != "" && settings {
			fmt.Fprintf(&b, "reported last: default_transaction_read_only %s\n", s.readOnly)
		}
		// Whether closing resets depends on what the server had not yet read.
		fmt.Fprintf(&b, "%s\n", strings.ReplaceAll(c.closed(), "reset", "closed"))
	}
	if s.rows != "" {
		fmt.Fprintf(&b, "rows: %s\n", s.rows)
	}
	if s.failed != "" {
		fmt.Fprintf(&b, "failed: %s\n", s.failed)
	}
	return b.String()
}
