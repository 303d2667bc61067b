package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// A refused write in a pipeline and in MULTI: its neighbours answer in order, and the
// transaction aborts by the server's own word.
func TestRefusedInTheMiddle(t *testing.T) {
	r := newRig(t, rigOptions{})
	key := testenv.Name(t, "k")
	w := dial(t, r.addr)
	w.send("PING", "SET "+key+" 1", "ECHO a", "INCR "+key, "ECHO b")
	for _, want := range []string{"+PONG\r\n", "-FENCED ", "$1\r\na\r\n", "-FENCED ", "$1\r\nb\r\n"} {
		if got := w.reply(); !strings.HasPrefix(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	w.send("MULTI", "GET "+key, "SET "+key+" 1", "PING", "EXEC", "GET "+key)
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "-FENCED ", "+QUEUED\r\n", "-EXECABORT ", "$-1\r\n"} {
		if got := w.reply(); !strings.HasPrefix(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	w.send("MULTI", "GET "+key, "PING", "EXEC")
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n$-1\r\n+PONG\r\n"} {
		if got := w.reply(); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// R9: no reply too many and none too few around refused writes.
func TestRefusedWithoutReplies(t *testing.T) {
	r := newRig(t, rigOptions{})
	key := testenv.Name(t, "k")
	w := dial(t, r.addr)
	w.send("CLIENT REPLY OFF", "SET "+key+" 1", "GET "+key, "FENCE STATUS", "FENCE BIND "+strings.Repeat("x", 20), "CLIENT REPLY ON",
		"CLIENT REPLY SKIP", "SET "+key+" 1", "SET "+key+" 1", "CLIENT REPLY SKIP", "FENCE HELP", "ECHO end")
	for _, want := range []string{"+OK\r\n", "-FENCED ", "$3\r\nend\r\n"} {
		if got := w.reply(); !strings.HasPrefix(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// A subscriber is served in both protocols; FENCE works around it where it can.
func TestSubscribers(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	channel := testenv.Name(t, "c")
	publish := func() {
		if err := r.control.Publish(t.Context(), channel, "m").Err(); err != nil {
			t.Fatal(err)
		}
	}
	message := fmt.Sprintf("3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$1\r\nm\r\n", len(channel), channel)
	w2 := dial(t, r.addr)
	w2.wantPrefix("SUBSCRIBE "+channel, "*3\r\n")
	publish()
	if got := w2.reply(); got != "*"+message {
		t.Fatalf("got %q", got)
	}
	w2.wantPrefix("SET a 1", "-FENCED ")
	w2.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-NOPERM ")
	w2.want("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	publish()
	if got := w2.reply(); got != "*"+message {
		t.Fatalf("got %q", got)
	}
	w2.want("RESET", "+RESET\r\n")
	w2.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")

	w3 := dial(t, r.addr)
	w3.wantPrefix("HELLO 3", "%7\r\n")
	w3.wantPrefix("SUBSCRIBE "+channel, ">3\r\n")
	w3.send("FENCE BIND " + lead.Token.Reveal())
	publish()
	got := w3.reply() + w3.reply()
	if got != ">"+message+"+OK\r\n" && got != "+OK\r\n>"+message {
		t.Fatalf("got %q", got)
	}
	w3.want("SET "+channel+"k 1", "+OK\r\n")
}

// R13: invalidation pushes come in place, and MONITOR is for leaders.
func TestTrackingAndMonitor(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	key := testenv.Name(t, "k")
	w := dial(t, r.addr)
	w.wantPrefix("HELLO 3", "%7\r\n")
	w.want("CLIENT TRACKING ON", "+OK\r\n")
	w.want("GET "+key, "_\r\n")
	if err := r.control.Set(t.Context(), key, 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := w.reply(); !strings.HasPrefix(got, ">2\r\n$10\r\ninvalidate\r\n") {
		t.Fatalf("got %q", got)
	}
	w.wantPrefix("MONITOR", "-FENCED ")
	w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	w.want("MONITOR", "+OK\r\n")
	if err := r.control.Get(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(w.reply(), key) {
	}
	w.send("RESET")
	for w.reply() != "+RESET\r\n" {
	}
	w.want("SET "+key+" 2", "+OK\r\n") // bound again
}

// A renamed command is what it was: by its new name a reader may not write, a leader may
// not shut the server down, and both are told so.
func TestRenamedCommands(t *testing.T) {
	p := testenv.Redis(t, "--rename-command", "SET", "PUT", "--rename-command", "SHUTDOWN", "BYE",
		"--rename-command", "GET", "FETCH", "--rename-command", "FLUSHALL", "")
	r := newRig(t, rigOptions{redis: p})
	w := dial(t, r.addr)
	w.wantPrefix("PUT a 1", "-FENCED ")
	w.wantPrefix("BYE", "-NOPERM ")
	w.want("FETCH a", "$-1\r\n")
	w.wantPrefix("SET a 1", "-FENCED ")
	w.wantPrefix("FLUSHALL", "-FENCED ")
}

// CLIENT renamed: nothing can be bound, and its new name opens no hole.
func TestClientRenamed(t *testing.T) {
	p := testenv.Redis(t, "--rename-command", "CLIENT", "KLIENT")
	r := newRig(t, rigOptions{redis: p})
	lead := r.lead(t)
	w := dial(t, r.addr)
	w.wantPrefix("KLIENT SETNAME fenceproxy:x:1:0011223344556677", "-NOPERM ")
	w.want("KLIENT SETNAME me", "+OK\r\n")
	w.wantPrefix("KLIENT KILL ID 1", "-NOPERM ")
	w.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-FENCEDOWN ")
	w.wantPrefix("SET a 1", "-FENCEDOWN ")
}

// Behind something that is not the server, a session is not bound: the connection that
// is named would not be the one that is killed.
func TestBehindAPooler(t *testing.T) {
	p := testenv.SharedRedis(t)
	pooler, _ := testenv.RelayTCP(t, p.Addr, nil, nil)
	r := newRig(t, rigOptions{config: func(c *resp.Config) { c.Upstream = pooler }})
	lead := r.lead(t)
	w := dial(t, r.addr)
	w.wantPrefix("FENCE BIND "+lead.Token.Reveal(), "-FENCED refused: a takeover could not end this connection")
	w.wantPrefix("SET a 1", "-FENCED ")
	w.wantPrefix("GET a", "$")
	_ = w.Close()
}

// A takeover ends an open transaction and what is queued behind a blocked command.
func TestTakeoverInMulti(t *testing.T) {
	r := newRig(t, rigOptions{})
	lead := r.lead(t)
	key := testenv.Name(t, "k")
	multi, queued := dial(t, r.addr), dial(t, r.addr)
	for _, w := range []*wire{multi, queued} {
		w.want("FENCE BIND "+lead.Token.Reveal(), "+OK\r\n")
	}
	multi.want("MULTI", "+OK\r\n")
	multi.want("SET "+key+" old", "+QUEUED\r\n")
	queued.send("BLMOVE "+key+"a "+key+"b LEFT RIGHT 0", "SET "+key+" old")
	eventually(t, "the command blocks", func() bool {
		info, err := r.control.Info(t.Context(), "clients").Result()
		return err == nil && !strings.Contains(info, "blocked_clients:0")
	})
	next := r.takeOver(t, lead)
	now := goRedis(t, &redis.Options{Addr: r.addr, Username: r.user("", next.Token), Password: "x"})
	if err := now.RPush(t.Context(), key+"a", "x").Err(); err != nil {
		t.Fatal(err)
	}
	multi.send("EXEC")
	multi.wantEnd()
	if got := queued.rest(); !strings.HasPrefix(got, "-FENCED stale leader") || strings.Count(got, "\r\n") != 1 {
		t.Errorf("got %q", got)
	}
	if n := now.Exists(t.Context(), key, key+"b").Val(); n != 0 {
		t.Error("the old leader's writes were applied")
	}
}
