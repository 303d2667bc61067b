package redisfence_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/guard/guardtest"
	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

const forever = "while true do end"

// keepBusy runs a command that does not end by itself, and waits until the server is busy.
func keepBusy(t *testing.T, p *servers.Process, args ...any) {
	t.Helper()
	busy, look := client(t, p.Addr), client(t, p.Addr)
	go busy.Do(t.Context(), args...)
	eventually(t, func() bool { return redis.HasErrorPrefix(look.Ping(t.Context()).Err(), "BUSY") })
}

// Nobody who only reads can hold up a takeover with a script that does not end.
func TestEndlessReadersDoNotHoldUpATakeover(t *testing.T) {
	p := testenv.Redis(t, "--busy-reply-threshold", "10")
	x := term(t, 7)
	f := open(t, p, redisfence.Options{})
	old := bound(t, p, f, x)
	lib := "#!lua name=lib\nredis.register_function{function_name='forever', callback=function() " + forever + " end, flags={'no-writes'}}"
	if err := client(t, p.Addr).FunctionLoad(t.Context(), lib).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()

	keepBusy(t, p, "EVAL_RO", forever, 0)
	was, err := f.Read(ctx, x.Election)
	if err != nil {
		t.Fatal("read:", err)
	}
	keepBusy(t, p, "FCALL_RO", "forever", 0)
	if _, err := f.Read(ctx, x.Election); err != nil {
		t.Fatal("read:", err)
	}
	keepBusy(t, p, "EVAL_RO", forever, 0)
	if err := f.Swap(ctx, x.Election, was, guardtest.Record(after(x), guard.Raised, 2)); err != nil {
		t.Fatal("swap:", err)
	}
	keepBusy(t, p, "EVAL_RO", forever, 0)
	if err := f.Sever(ctx, after(x)); err != nil {
		t.Fatal("sever:", err)
	}
	if old.Write(t.Context()) == nil {
		t.Error("not severed")
	}
}

// A script that has written is left alone, and so is any where the control user has not
// the right: the takeover waits.
func TestScriptsThatCannotBeEndedAreWaitedFor(t *testing.T) {
	for _, c := range []struct{ name, script, user string }{
		{"it has written", "redis.call('SET', 'a', '1') " + forever, ""},
		{"no right", forever, "ctl:pw@"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testenv.Redis(t, "--busy-reply-threshold", "10")
			rules := strings.NewReplacer("+script|kill", "", "+function|kill", "").Replace(redisfence.Rules)
			args := []any{"ACL", "SETUSER", "ctl", "on", ">pw"}
			for rule := range strings.FieldsSeq(rules) {
				args = append(args, rule)
			}
			if err := client(t, p.Addr).Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
			f, err := redisfence.Open(t.Context(), "redis://"+c.user+p.Addr, redisfence.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			keepBusy(t, p, "EVAL", c.script, 0)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			if err := f.Sever(ctx, term(t, 7)); err == nil || !redis.HasErrorPrefix(client(t, p.Addr).Ping(t.Context()).Err(), "BUSY") {
				t.Errorf("severed (%v), or the script was ended", err)
			}
			p.Kill()
		})
	}
}
