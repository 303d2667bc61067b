package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/policy"
)

// A modelServer is a server as far as a session's state goes: it reads what is sent up with
// a decoder that is not ours, runs it in order and answers. Moves may make it answer wrongly.
type modelServer struct {
	t      *testing.T
	table  testCommands
	in     []byte
	out    []byte // not yet delivered
	name   string
	multi  bool
	queued [][][]byte
	silent bool
	skip   bool
	resp3  bool
	deaf   bool // it closed, or would: nothing more is read
	fence  string
	role   string
	lies   byte // what to answer wrongly

	live bool // the permit
}

func (s *modelServer) reply(format string, args ...any) {
	if s.silent || s.skip {
		return
	}
	s.out = fmt.Appendf(s.out, format, args...)
}

// read runs what has come whole.
func (s *modelServer) read(up []byte) {
	s.in = append(s.in, up...)
	for !s.deaf && len(s.in) > 0 {
		if s.in[0] != '*' {
			s.deaf = true // what a server refuses
			return
		}
		if after, ok := bytes.CutPrefix(s.in, []byte("*0\r\n")); ok {
			s.in, s.skip = after, false
			continue
		}
		args, rest := decode(s.in)
		if rest == nil {
			return
		}
		if len(args) == 0 {
			s.deaf = true
			return
		}
		s.in = rest
		s.run(args, false)
	}
}

func (s *modelServer) run(args [][]byte, inExec bool) {
	name := strings.ToLower(string(args[0]))
	skip := s.skip
	cmd := s.table[name]
	if cmd != nil && cmd.Container && len(args) > 1 {
		cmd = cmd.sub(bytes.ToLower(args[1]))
	}
	switch {
	case cmd == nil:
		s.reply("-ERR unknown command '%s', with args beginning with: \r\n", args[0])
	case s.multi && !inExec && cmd.verb != verbExec && cmd.verb != verbDiscard && cmd.verb != verbReset && cmd.verb != verbMulti && cmd.verb != verbQuit:
		s.queued = append(s.queued, args)
		s.reply("+QUEUED\r\n")
	default:
		s.command(cmd, args)
	}
	if skip {
		s.skip = false
	}
}

// command runs one command.
//
// INVARIANT that is checked: a write runs on a connection that carries the name of a permit
// which lived when it was sent.
func (s *modelServer) command(cmd *command, args [][]byte) {
	if cmd.Class == policy.RedisRefused {
		s.t.Fatalf("%q was sent up", args)
	}
	if cmd.Class != policy.RedisRead && (s.name != testBinding(7).name || !s.live) {
		s.t.Fatalf("%q ran under the name %q; the permit lives: %v", args, s.name, s.live)
	}
	switch cmd.verb {
	case verbSetName:
		if len(args) != 3 || !validName(args[2]) || s.lies&1 != 0 {
			s.reply("-ERR no\r\n")
			return
		}
		if own := string(args[2]); strings.HasPrefix(own, "fenceproxy:") && own != testBinding(7).name {
			s.t.Fatalf("the name %q was given", own)
		}
		s.name = string(args[2])
		s.reply("+OK\r\n")
	case verbHello:
		if len(args) > 1 {
			if s.lies&2 != 0 {
				s.reply("-WRONGPASS no\r\n")
				return
			}
			s.resp3 = string(args[1]) == "3"
			for i := range args {
				if i > 1 && equalFold(args[i], "setname") && i+1 < len(args) && validName(args[i+1]) {
					s.name = string(args[i+1])
				}
			}
		}
		if s.resp3 {
			s.reply("%%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nrole\r\n$%d\r\n%s\r\n", len(s.role), s.role)
			return
		}
		s.reply("*4\r\n$5\r\nproto\r\n:2\r\n$4\r\nrole\r\n$%d\r\n%s\r\n", len(s.role), s.role)
	case verbAuth:
		switch {
		case s.lies&4 != 0:
			s.reply("-WRONGPASS no\r\n")
		case s.lies&8 != 0: // as servers do while a reply is pending
		default:
			s.reply("+OK\r\n")
		}
	case verbReset:
		if len(args) == 1 {
			s.name, s.multi, s.queued, s.silent, s.skip, s.resp3 = "", false, nil, false, false, false
			s.out = append(s.out, "+RESET\r\n"...)
			return
		}
		s.reply("-ERR args\r\n")
	case verbMulti:
		if len(args) == 1 && !s.multi {
			s.multi = true
			s.reply("+OK\r\n")
			return
		}
		s.reply("-ERR no\r\n")
	case verbExec, verbDiscard:
		if len(args) != 1 || !s.multi {
			s.reply("-ERR no\r\n")
			return
		}
		queued := s.queued
		s.multi, s.queued = false, nil
		if cmd.verb == verbDiscard {
			s.reply("+OK\r\n")
			return
		}
		s.reply("*%d\r\n", len(queued))
		for _, q := range queued {
			s.run(q, true)
		}
	case verbReply:
		if len(args) != 3 {
			s.reply("-ERR args\r\n")
			return
		}
		switch mode := cString(args[2]); {
		case equalFold(mode, "off"):
			s.silent = true
		case equalFold(mode, "skip"):
			s.skip = !s.silent
		case equalFold(mode, "on"):
			s.silent, s.skip = false, false
			s.reply("+OK\r\n")
		default:
			s.reply("-ERR syntax\r\n")
		}
	case verbQuit:
		s.reply("+OK\r\n")
		s.deaf = true
	default:
		switch {
		case strings.HasSuffix(cmd.Name, "|info"):
			addr := "127.0.0.1:1"
			if s.lies&16 != 0 {
				addr = "10.0.0.1:1"
			}
			text := fmt.Sprintf("id=3 addr=%s laddr=127.0.0.1:6379 fd=8 name=%s db=0 multi=-1 flags=N resp=2\n", addr, s.name)
			s.reply("$%d\r\n%s\r\n", len(text), text)
		case cmd.Name == "get" && len(args) == 2 && string(args[1]) == testBinding(7).key:
			s.reply("$%d\r\n%s\r\n", len(s.fence), s.fence)
		default:
			s.reply("+fine\r\n")
		}
	}
}

// A fuzzLead is a sidecar's leadership that comes and goes.
type fuzzLead struct{ leads bool }

func (l *fuzzLead) Election() string { return "jobs" }

func (l *fuzzLead) Credential() (guard.Credential, bool) {
	t, _ := election.ParseToken("a-token-of-this-test")
	return guard.Credential{Election: "jobs", Token: t}, l.leads
}

func (l *fuzzLead) Refusal() *guard.Refusal {
	return &guard.Refusal{Reason: guard.NotElected, Election: "jobs", Rules: 12, Leader: "host-b"}
}

// FuzzSession plays a session: a client's stream against a server, a guard and a permit
// that ends, in any order and in any pieces. A write never runs but under the bound name of
// a permit that lived when it was sent; and the server's answers about what the proxy sent
// for itself never reach the client.
func FuzzSession(f *testing.F) {
	for _, s := range []string{
		"FENCE BIND a-token-of-this-test\r\nSET a 1\r\nGET a\r\nFENCE UNBIND\r\nSET a 2\r\n",
		"AUTH ;token=a-token-of-this-test pw\r\nSET a 1\r\nRESET\r\nSET a 2\r\nAUTH x pw\r\nSET a 3\r\n",
		"HELLO 3 AUTH ;token=a-token-of-this-test pw SETNAME me\r\nMULTI\r\nSET a 1\r\nCLIENT SETNAME x\r\nEXEC\r\nHELLO 2 SETNAME y\r\nINCR a\r\n",
		"FENCE BIND a-token-of-this-test\r\nCLIENT REPLY OFF\r\nSET a 1\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nSET b 1\r\nFENCE BIND a-token-of-this-test\r\nSET c 1\r\n",
		"FENCE BIND a-token-of-this-test\r\nMULTI\r\nFENCE BIND a-token-of-this-test\r\nHELLO 3\r\nRESET\r\nCLIENT SETNAME fenceproxy:jobs:9\r\nSET a 1\r\n",
		"SET a 1\r\nFENCE BIND short\r\nFENCE STATUS\r\nPUBLISH c m\r\nFENCE BIND a-token-of-this-test\r\nPUBLISH c m\r\nNOSUCH\r\nQUIT\r\n",
		"FENCE BIND a-token-of-this-test\r\nFENCE BIND a-token-of-this-test\r\nCLIENT GETNAME\r\nAUTH a b\r\nSET a 1\r\nAUTH ;token=a-token-of-this-test c\r\nFLUSHALL\r\n",
		"ELECTION STATUS a\r\nGET a\r\nELECTION STATUS a\r\nMULTI\r\nELECTION STATUS a\r\nEXEC\r\nCLIENT REPLY SKIP\r\nELECTION STATUS a\r\nRESET\r\nELECTION STATUS a\r\nFENCE GATE LIST\r\n",
	} {
		f.Add([]byte(s), []byte{6, 1, 2, 3, 250, 4, 5, 60, 6, 7, 90, 8, 30, 9, 1}, byte(128))
		for lies := byte(0); lies < 6; lies++ {
			f.Add([]byte(s), []byte{0, 1, 2, 3, 250, 4, 5, 60, 6, 7, 90, 8, 30, 9, 1}, byte(1)<<lies>>1)
			f.Add([]byte(s), []byte("\xff\x80\x40\x20"), byte(1)<<lies>>1)
		}
	}
	f.Fuzz(func(t *testing.T, stream, moves []byte, lies byte) {
		cfg, lead := testConfig(), &fuzzLead{}
		if lies&128 != 0 {
			cfg.lead = lead
		}
		c := newCore(cfg)
		right := testBinding(7)
		s := &modelServer{t: t, table: newTestCommands(), fence: right.value, role: "master", lies: lies, live: true}
		if lies&32 != 0 {
			s.fence = "6:x:severed:y"
		}
		if lies&64 != 0 {
			s.role = "slave"
		}
		send := func() {
			// As the shell: the permit is asked whether it lives before each write.
			if c.holds() && !s.live && len(c.up) > 0 {
				c.end(c.refusalLine(&guard.Refusal{Reason: guard.Stale, Election: "jobs"}))
			}
			s.read(c.up)
			c.up = c.up[:0]
		}
		next := func() byte {
			if len(moves) == 0 {
				return 255
			}
			m := moves[0]
			moves = append(moves[1:len(moves):len(moves)], m*31+7)
			return m
		}
		for step := 0; step < 400 && !c.closed; step++ {
			m := next()
			lead.leads = lead.leads != (m%8 == 6)
			if c.ask.kind != askNothing {
				switch c.ask.kind {
				case askAdmit:
					if m%5 == 0 || !s.live {
						c.admitted(nil, &guard.Refusal{Reason: guard.Stale, Election: "jobs"})
					} else {
						c.admitted(testBinding(7), nil)
					}
				case askLive:
					if c.confirmed(s.live, &guard.Refusal{Reason: guard.Stale, Election: "jobs"}); c.bound != nil && s.name != c.bound.name {
						t.Fatalf("bound, while the server knows the connection as %q", s.name)
					}
				case askCommand:
					c.cfg.commands.(testCommands)[c.ask.command] = nil
					c.asked(m%7 != 0)
				case askOwn:
					if len(s.out) > 0 {
						t.Fatalf("asked for %q before the replies %q were sent", c.ask.call.args, s.out)
					}
					c.call()
					if m%11 == 0 {
						s.live = false
						c.end(c.refusalLine(&guard.Refusal{Reason: guard.Stale, Election: "jobs"}))
					}
					c.called([]byte("+own\r\n"))
				default:
					t.Fatalf("asked %v", c.ask.kind)
				}
				send()
				continue
			}
			switch {
			case m%64 == 63 && m > 128 && s.live && m != 255:
				s.live = false
				if c.holds() {
					c.end(c.refusalLine(&guard.Refusal{Reason: guard.Stale, Election: "jobs"}))
				}
			case m%2 == 0 && len(s.out) > 0 || len(stream) == 0:
				k := min(len(s.out), 1+int(m))
				if err := c.fromServer(bytes.Clone(s.out[:k])); err != nil {
					t.Fatalf("the server's answer is not understood: %v", err)
				}
				s.out = s.out[k:]
			default:
				k := min(len(stream), 1+int(m))
				n := c.fromClient(bytes.Clone(stream[:k]))
				stream = stream[n:]
			}
			send()
		}
		if strings.Contains(string(c.down), testNonce+":S") {
			t.Fatalf("what the proxy sent for itself was answered to the client: %q", c.down)
		}
	})
}
