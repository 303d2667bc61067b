package respdiff

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// normalisations are all that is allowed to differ between the server and the proxy, or
// from one run to the next, in any reply.
var normalisations = []struct {
	why    string
	change func(*side, []byte) []byte
}{
	{"a refused command is answered by the proxy in the place of the server's answer to a command that it does not know", func(s *side, b []byte) []byte {
		if bytes.HasPrefix(b, []byte("-ERR unknown command '"+noCommand+"'")) {
			return []byte("-refused\r\n")
		}
		for word := range s.refused {
			if bytes.HasPrefix(b, []byte("-"+word+" ")) {
				return []byte("-refused\r\n")
			}
		}
		return b
	}},
	{"each connection has an id of its own", func(s *side, b []byte) []byte {
		b = helloID.ReplaceAllLiteral(b, []byte("$2\r\nid\r\n:ID\r\n"))
		for _, c := range s.conns {
			if c.id != "" {
				b = bytes.ReplaceAll(b, []byte(":"+c.id+"\r\n"), []byte(":ID-"+c.name+"\r\n"))
			}
		}
		return b
	}},
	{"CLIENT INFO and CLIENT LIST: ids, addresses, times and memory are each connection's own, and a bound one is listed under the bound name; the rest is compared", func(_ *side, b []byte) []byte {
		if !clientLine.Match(b) {
			return b
		}
		b = clientOwn.ReplaceAll(b, []byte(" $1=…"))
		b = clientFirst.ReplaceAll(b, []byte("id=…"))
		return bulkHead.ReplaceAll(b, []byte("$1N\r\n"))
	}},
	{"MONITOR shows times and addresses, and the proxy's own control connection's commands", func(_ *side, b []byte) []byte {
		return monitorLine.ReplaceAll(b, []byte("+TIME [$1 ADDRESS]"))
	}},
	{"the random prefix of ACL LOG, CLIENT and script errors: line numbers and addresses in memory", func(_ *side, b []byte) []byte {
		return scriptAddress.ReplaceAll(b, []byte("0x…"))
	}},
}

var (
	helloID       = regexp.MustCompile(`\$2\r\nid\r\n:\d+\r\n`)
	clientLine    = regexp.MustCompile(`id=\d+ addr=\S+ laddr=`)
	clientFirst   = regexp.MustCompile(`id=\d+`)
	clientOwn     = regexp.MustCompile(` (addr|laddr|fd|name|age|idle|qbuf|qbuf-free|argv-mem|multi-mem|rbs|rbp|obl|oll|omem|tot-mem|tot-net-in|tot-net-out|tot-cmds|io-thread)=\S*`)
	bulkHead      = regexp.MustCompile(`^([$=])\d+\r\n`)
	monitorLine   = regexp.MustCompile(`^\+\d+\.\d+ \[(\d+) \S+?\]`)
	scriptAddress = regexp.MustCompile(`0x[0-9a-f]{6,}`)
)

// proxysOwn reports whether a reply is one that only a proxied session can see: MONITOR shows
// what the proxy asks the server when it binds other sessions, and on its control connection.
func proxysOwn(b []byte) bool { return monitorLine.Match(b) && monitorOwn.Match(b) }

var monitorOwn = regexp.MustCompile(`\] "(?i:command)"|\] "CLIENT" "INFO"|\] "HELLO"\r|"fenceproxy:|\] "(EVAL|EVALSHA|CLIENT)" .*fenceproxy:`)

// normal is a reply as it is compared.
func (s *side) normal(b []byte) []byte {
	if len(b) > 64<<10 {
		return b // a value
	}
	for _, n := range normalisations {
		b = n.change(s, b)
	}
	return b
}

func (s *side) bytes() string { return s.show(func(b []byte) string { return string(b) }) }

// text is what is pinned.
func (s *side) text() string {
	text := s.show(func(b []byte) string {
		switch proto := helloProto.FindSubmatch(b); {
		case proto != nil:
			return fmt.Sprintf("hello in RESP%s\n", proto[1])
		case bytes.Contains(b, []byte("\r\nthe-end\r\n")):
			return ""
		}
		return show(b) + "\n"
	})
	var out strings.Builder
	last, times := "", 0
	flush := func() {
		if times > 3 {
			fmt.Fprintf(&out, "%s, %d times\n", strings.TrimSuffix(last, "\n"), times)
		} else {
			out.WriteString(strings.Repeat(last, times))
		}
	}
	for line := range strings.Lines(text) {
		if line != last {
			flush()
			last, times = line, 0
		}
		times++
	}
	flush()
	return out.String()
}

// helloProto finds HELLO's answer, whose rest is compared, but not pinned: it says much of
// the server's build.
var helloProto = regexp.MustCompile(`^[*%]\d+\r\n\$6\r\nserver\r\n[\s\S]*\r\nproto\r\n:(\d)`)

func (s *side) show(one func([]byte) string) string {
	var b strings.Builder
	for _, c := range s.conns {
		if len(s.conns) > 1 {
			fmt.Fprintf(&b, "%s:\n", c.name)
		}
		for _, reply := range c.got {
			if !proxysOwn(reply) {
				b.WriteString(one(s.normal(reply)))
			}
		}
		if len(c.raw) > 0 {
			fmt.Fprintf(&b, "and bytes: %.200q\n", c.raw)
		}
		if c.left {
			b.WriteString("closed\n")
		}
	}
	if s.data != "" {
		fmt.Fprintf(&b, "data: %s\n", s.data)
	}
	if s.failed != "" {
		fmt.Fprintf(&b, "failed: %s\n", s.failed)
	}
	return b.String()
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
