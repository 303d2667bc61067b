package gateapi

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// talkTo is a conversation with a gate in a bubble of fake time, and what asks in it.
func talkTo(t *testing.T, f func(t *testing.T, b *memory.Backend, g *guard.Gate, begin func() *conversation)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		g, err := guard.NewGate(b, guard.GateConfig{Name: "orders", Election: "orders-{partition}"})
		if err != nil {
			t.Fatal(err)
		}
		a := New([]*guard.Gate{g}, Config{})
		c := a.RESP([]string{"orders"})
		f(t, b, g, func() *conversation { return c.Begin(&net.UnixAddr{}).(*conversation) })
		a.Close()
		g.Close()
	})
}

// say is the code that a command is refused with.
func say(t *testing.T, c *conversation, line string) string {
	t.Helper()
	e := c.answer(t.Context(), time.Now(), strings.Fields(line), new(resp.Reply))
	if e == nil {
		return ""
	}
	return e.Code
}

func TestCommandArguments(t *testing.T) {
	talkTo(t, func(t *testing.T, _ *memory.Backend, _ *guard.Gate, begin func() *conversation) {
		c, tok := begin(), election.NewToken().Reveal()
		for line, want := range map[string]string{
			"": "invalid-argument", "nothing": "invalid-argument", "bind": "invalid-argument", "bind orders": "invalid-argument",
			"bind orders 7": "invalid-argument", "bind orders 7 " + tok + " wait": "invalid-argument", "bind orders 7 " + tok + " wait x": "invalid-argument",
			"bind orders 7 " + tok + " wait 0": "invalid-argument", "bind orders 7 " + tok + " wait 60001": "invalid-argument", "bind orders 7 " + tok + " x 1": "invalid-argument",
			"bind other 7 " + tok: "unknown-gate", "bind orders 7 short": "invalid-token", "bind orders a/b " + tok: "invalid-partition",
			"BIND orders 7 " + tok + " WAIT 10": "vacant", "keep orders": "invalid-argument", "keep orders 7": "unknown-binding", "keep orders 7 timeout": "invalid-argument",
			"release orders 7": "unknown-binding", "release orders 7 x": "invalid-argument", "list x": "invalid-argument", "help": "", "LIST": "",
		} {
			if got := say(t, c, line); got != want {
				t.Errorf("%q: %q, want %q", line, got, want)
			}
		}
		c.End()
	})
}

// A connection that ends leaves its partition when what its consumer was told is over, and
// not before.
func TestAConnectionThatEnds(t *testing.T) {
	talkTo(t, func(t *testing.T, b *memory.Backend, g *guard.Gate, begin func() *conversation) {
		held, err := b.Acquire(t.Context(), "orders-7", election.AcquireOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		c := begin()
		if code := say(t, c, "BIND orders 7 "+held.Token.Reveal()); code != "" {
			t.Fatal(code)
		}
		time.Sleep(time.Minute) // an idle connection keeps it
		if code := say(t, c, "KEEP orders 7 TIMEOUT 100"); code != "" {
			t.Fatal(code)
		}
		told := c.mine[place{"orders", "7"}].told
		gone := time.Now()
		c.End()
		if l := g.List(); len(l) != 1 || !l[0].Ended {
			t.Errorf("%+v", l)
		}
		for len(g.List()) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if now := time.Now(); now.Before(told) || now.Sub(gone) > guard.DefaultPermitFor+time.Second {
			t.Errorf("free %v after the end, %v after what was told", now.Sub(gone), now.Sub(told))
		}
	})
}

// A consumer that connects again waits for what it was told on its earlier connection, at
// whichever gate, and is not refused.
func TestAConsumerThatConnectsAgain(t *testing.T) {
	talkTo(t, func(t *testing.T, b *memory.Backend, g *guard.Gate, begin func() *conversation) {
		held, err := b.Acquire(t.Context(), "orders-7", election.AcquireOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		other, err := guard.NewGate(b, guard.GateConfig{Name: "orders", Election: "orders-{partition}"})
		if err != nil {
			t.Fatal(err)
		}
		there := New([]*guard.Gate{other}, Config{})
		elsewhere := there.RESP([]string{"orders"}).Begin(&net.UnixAddr{}).(*conversation)
		bind := "BIND orders 7 " + held.Token.Reveal()
		var told time.Time
		for i, c := range []*conversation{begin(), begin(), elsewhere} {
			if code := say(t, c, bind); code != "" {
				t.Fatalf("%d: %s", i, code)
			}
			if time.Now().Before(told) {
				t.Errorf("%d: bound %v before what was told is over", i, time.Until(told))
			}
			time.Sleep(time.Minute + 300*time.Millisecond)
			if code := say(t, begin(), bind+" WAIT 100"); code != "occupied" {
				t.Errorf("%d, while it lives: %q", i, code)
			}
			if code := say(t, c, "KEEP orders 7 TIMEOUT 1"); code != "" {
				t.Fatal(code)
			}
			told = c.mine[place{"orders", "7"}].told
			c.End()
		}
		there.Close()
		other.Close()
	})
}

// A refusal names the argument and its bounds.
func TestArgumentsAreNamed(t *testing.T) {
	talkTo(t, func(t *testing.T, _ *memory.Backend, _ *guard.Gate, begin func() *conversation) {
		c := begin()
		for line, want := range map[string]string{
			"bind orders 7":           "FENCE GATE BIND <gate> <partition> <token> [WAIT <ms>]",
			"bind orders 7 x wait -1": "WAIT must be 1 to 60000 milliseconds",
			"keep orders 7 timeout x": "TIMEOUT must be 1 to 60000 milliseconds",
		} {
			if e := c.answer(t.Context(), time.Now(), strings.Fields(line), new(resp.Reply)); e == nil || !strings.Contains(e.Message, want) {
				t.Errorf("%q: %+v", line, e)
			}
		}
		c.End()
	})
}

// What a connection binds and loses again and again does not add up.
func TestLostBindingsAreForgotten(t *testing.T) {
	talkTo(t, func(t *testing.T, b *memory.Backend, _ *guard.Gate, begin func() *conversation) {
		c := begin()
		for i := range maxMine + 5 {
			p := "p" + strconv.Itoa(i)
			held, err := b.Acquire(t.Context(), "orders-"+p, election.AcquireOptions{TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if code := say(t, c, "BIND orders "+p+" "+held.Token.Reveal()); code != "" {
				t.Fatal(code)
			}
			if i == maxMine-5 {
				continue // one that lives
			}
			if _, err := b.Resign(t.Context(), "orders-"+p, held.Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			<-c.mine[place{"orders", p}].b.Free()
			if code := say(t, c, "KEEP orders "+p); code == "" || code == "unknown-binding" {
				t.Fatalf("the last one's loss: %q", code)
			}
		}
		if n := len(c.mine); n > 10 {
			t.Errorf("%d bindings are remembered", n)
		}
		if code := say(t, c, "KEEP orders p"+strconv.Itoa(maxMine-5)+" TIMEOUT 1"); code != "" {
			t.Errorf("the one that lives: %q", code)
		}
		c.End()
	})
}
