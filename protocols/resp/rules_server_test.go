package resp_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

// withRules makes a rig's listener one with rules whose elections and keys begin with a
// prefix of the test's own.
func withRules(t testing.TB, prefix, fallback string, rules ...policy.Rule) func(*resp.Config) {
	t.Helper()
	for i := range rules {
		rules[i].Kind = policy.Key
		for j := range rules[i].Patterns {
			rules[i].Patterns[j] = prefix + rules[i].Patterns[j]
		}
		if rules[i].Election != "" {
			rules[i].Election = prefix + rules[i].Election
		}
	}
	compiled, err := policy.NewRules(rules, fallback, election.CheckID)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *resp.Config) { c.Rules, c.Election = compiled, fallback }
}

// acquire takes an election that nobody holds.
func (r *rig) acquire(t testing.TB, id string) election.AcquireResult {
	t.Helper()
	res, err := r.elections.Acquire(t.Context(), id, election.AcquireOptions{Owner: "worker"})
	if err != nil || res.Status != election.Acquired {
		t.Fatalf("%+v, %v", res, err)
	}
	return res
}

func shardRules(t testing.TB, p string) func(*resp.Config) {
	return withRules(t, p, "",
		policy.Rule{Patterns: []string{"orders:{shard}:*"}, Election: "orders-{shard}"},
		policy.Rule{Patterns: []string{"audit:*"}, Election: "audit"},
		policy.Rule{Patterns: []string{"open:*"}, Access: policy.Open},
		policy.Rule{Patterns: []string{"closed:*"}, Access: policy.Deny},
	)
}

func TestRulesSayWhoWrites(t *testing.T) {
	p := testenv.Name(t, "r")
	r := newRig(t, rigOptions{config: shardRules(t, p)})
	one, audit := r.acquire(t, p+"orders-1"), r.acquire(t, p+"audit")
	w := dial(t, r.addr)
	k1, k2, ka := p+"orders:1:x", p+"orders:2:x", p+"audit:x"
	w.want("SET "+p+"open:x 1", "+OK\r\n")
	w.want("GET "+k1, "$-1\r\n")
	w.wantPrefix("SET "+k1+" 1", fmt.Sprintf("-FENCED write refused: election %q rules key %q, and this session has no live token of it. Present it: FENCE BIND %s <token>", p+"orders-1", k1, p+"orders-1"))
	w.wantPrefix("SET "+p+"closed:x 1", "-NOPERM rule 4 (keys "+p+"closed:*) denies writing key ")
	w.wantPrefix("SET elsewhere 1", "-NOPERM no rule matches key \"elsewhere\"")
	w.wantPrefix("SET \""+p+"orders:a b:x\" 1", "-NOPERM rule 1 (keys "+p+"orders:{shard}:*) makes no valid election of key ")
	w.wantPrefix("FLUSHALL", "-NOPERM it cannot be told what FLUSHALL writes, and rule 1 ")
	w.wantPrefix("EVAL x 0", "-NOPERM it cannot be told what EVAL writes")
	w.wantPrefix("PUBLISH c m", "-NOPERM it cannot be told what PUBLISH writes")
	w.wantPrefix("NOSUCH a", "-NOPERM it cannot be told what a command that the server does not know writes")

	w.want("FENCE BIND "+p+"orders-1 "+one.Token.Reveal(), "+OK\r\n")
	w.want("SET "+k1+" 1", "+OK\r\n")
	w.wantPrefix("SET "+k2+" 1", "-FENCED write refused: election \""+p+"orders-2\"")
	w.wantPrefix("SET "+ka+" 1", "-FENCED ")
	w.wantPrefix("RENAME "+k1+" "+ka, "-FENCED ")
	w.want("FENCE BIND "+p+"audit "+audit.Token.Reveal(), "+OK\r\n")
	w.want("RENAME "+k1+" "+ka, "+OK\r\n")
	w.want("COPY "+ka+" "+k1, ":1\r\n")
	w.wantPrefix("DEL "+k1+" "+k2, "-FENCED ")
	w.want("SORT "+k2, "*0\r\n")
	w.want("MULTI", "+OK\r\n")
	w.want("SET "+k1+" 2", "+QUEUED\r\n")
	w.wantPrefix("SET "+k2+" 2", "-FENCED ")
	w.wantPrefix("EXEC", "-EXECABORT ")
	w.want("CLIENT SETNAME me", "+OK\r\n")
	w.want("CLIENT GETNAME", "$2\r\nme\r\n")
	name := "name=fenceproxy:" + p + "orders-1:" + strconv.FormatInt(one.Number, 10)
	if info := w.ask("CLIENT INFO"); !strings.Contains(info, name) || !strings.Contains(info, ","+p+"audit:"+strconv.FormatInt(audit.Number, 10)+":") {
		t.Errorf("the connection's name: %q", info)
	}
	status := w.ask("FENCE STATUS")
	if want := fmt.Sprintf("$5\r\nterms\r\n*2\r\n*2\r\n$%d\r\n%sorders-1\r\n:%d\r\n*2\r\n", len(p)+8, p, one.Number); !strings.Contains(status, want) {
		t.Errorf("status %q, want %q", status, want)
	}

	// A refused bind leaves the others.
	w.wantPrefix("FENCE BIND "+p+"orders-2 "+audit.Token.Reveal(), "-FENCED ")
	w.want("SET "+k1+" 3", "+OK\r\n")
	w.wantPrefix("SET "+k2+" 1", "-FENCED election \""+p+"orders-2\" rules key \""+k2+"\". stale leader refused")
	w.want("FENCE UNBIND "+p+"audit", "+OK\r\n")
	w.want("FENCE UNBIND "+p+"audit", "+OK\r\n")
	w.want("SET "+k1+" 4", "+OK\r\n")
	w.wantPrefix("SET "+ka+" 4", "-FENCED ")
	if info := w.ask("CLIENT INFO"); !strings.Contains(info, name) || strings.Contains(info, ",") {
		t.Errorf("the connection's name: %q", info)
	}
	w.want("FENCE UNBIND "+p+"orders-1", "+OK\r\n")
	w.wantPrefix("SET "+k1+" 5", "-FENCED ")
	w.want("CLIENT GETNAME", "$2\r\nme\r\n")
	if info := w.ask("CLIENT INFO"); !strings.Contains(info, "name=me ") {
		t.Errorf("the connection's name: %q", info)
	}
}

// A script can write what it does not declare: open keys let nobody without a token run one.
func TestOpenKeysRunNoScripts(t *testing.T) {
	p := testenv.Name(t, "r")
	lead := &fakeLead{election: p + "audit"}
	rules := shardRules(t, p)
	r := newRig(t, rigOptions{config: func(c *resp.Config) { rules(c); c.Lead = lead }})
	open, key := p+"open:x", p+"orders:1:x"
	w := dial(t, r.addr)
	script := "\"return redis.call('SET',ARGV[1],1)\" 1 " + open + " " + key
	w.wantPrefix("EVAL "+script, "-FENCED EVAL refused: a script can write more than the keys that it is given")
	w.wantPrefix("EVALSHA "+strings.Repeat("0", 40)+" 1 "+open+" "+key, "-FENCED EVALSHA refused")
	w.wantPrefix("FCALL f 1 "+open+" "+key, "-FENCED FCALL refused")
	w.want("MULTI", "+OK\r\n")
	w.wantPrefix("EVAL "+script, "-FENCED ")
	w.wantPrefix("EXEC", "-EXECABORT ")
	long, text := "return 1 --"+strings.Repeat("x", 40_000), ""
	for _, a := range []string{"EVAL", long, "1", open} {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	other := dial(t, r.addr)
	other.send("*4\r\n" + strings.TrimSuffix(text, "\r\n"))
	if got := other.reply(); !strings.HasPrefix(got, "-FENCED EVAL refused") {
		t.Error(got)
	}
	w.want("EVAL_RO \"return 1\" 1 "+open, ":1\r\n")
	if n := r.control.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("a session without a token wrote a key that is not open")
	}
	g := r.acquire(t, p+"audit")
	lead.token.Store(&g.Token)
	w.want("EVAL \"return redis.call('SET',KEYS[1],1)\" 1 "+open, "+OK\r\n") // the listener leads
}

// The loss of any term ends the session, by the takeover's sweep: the permit is still good.
func TestTheLossOfAnyTermEnds(t *testing.T) {
	for lost := range 3 {
		t.Run(strconv.Itoa(lost), func(t *testing.T) {
			p := testenv.Name(t, "r")
			r := newRig(t, rigOptions{config: shardRules(t, p), guard: guard.Config{ValidateEvery: time.Hour, PermitFor: 3 * time.Hour}})
			var held []election.AcquireResult
			old := dial(t, r.addr)
			for i := range 3 {
				id := p + "orders-" + strconv.Itoa(i)
				held = append(held, r.acquire(t, id))
				old.want("FENCE BIND "+id+" "+held[i].Token.Reveal(), "+OK\r\n")
			}
			keys := fmt.Sprintf("%sorders:%d:x 1 %sorders:%d:x 1", p, (lost+1)%3, p, (lost+2)%3)
			old.want("MSET "+keys, "+OK\r\n")
			old.send("BLPOP " + p + "orders:" + strconv.Itoa((lost+1)%3) + ":l 0")
			r.blocks(t, p+"orders-")
			id := p + "orders-" + strconv.Itoa(lost)
			if _, err := r.elections.Resign(t.Context(), id, held[lost].Token, election.ResignOptions{}); err != nil {
				t.Fatal(err)
			}
			next := r.acquire(t, id)
			w := dial(t, r.addr)
			w.want("FENCE BIND "+id+" "+next.Token.Reveal(), "+OK\r\n")
			if got := old.rest(); !strings.HasPrefix(got, "-FENCED ") || !strings.Contains(got, strconv.Quote(id)) {
				t.Errorf("the old leader got %q", got)
			}
		})
	}
}

// A user name may hold several credentials, and RESET keeps them.
func TestSeveralCredentialsInAUserName(t *testing.T) {
	p := testenv.Name(t, "r")
	r := newRig(t, rigOptions{config: shardRules(t, p)})
	one, two, audit := r.acquire(t, p+"orders-1"), r.acquire(t, p+"orders-2"), r.acquire(t, p+"audit")
	pair := func(id string, t election.Token) string { return ";election=" + p + id + ";token=" + t.Reveal() }
	w := dial(t, r.addr)
	user := "default" + pair("orders-1", one.Token) + pair("orders-2", audit.Token) + pair("audit", audit.Token)
	w.wantPrefix("HELLO 3 AUTH "+user+" x", "%")
	all := "MSET " + p + "orders:1:x 1 " + p + "audit:x 1"
	w.want(all, "+OK\r\n")
	w.wantPrefix("SET "+p+"orders:2:x 1", "-FENCED election \""+p+"orders-2\" rules")
	w.want("FENCE BIND "+p+"orders-2 "+two.Token.Reveal(), "+OK\r\n")
	all += " " + p + "orders:2:x 1"
	w.want(all, "+OK\r\n")
	w.want("RESET", "+RESET\r\n")
	w.want(all, "+OK\r\n")
	w.want("RESET", "+RESET\r\n")
	w.want("FENCE UNBIND", "+OK\r\n")
	w.wantPrefix(all, "-FENCED ")
	w.wantPrefix("AUTH default"+pair("orders-1", one.Token)+";election="+p+"audit x", "+OK")
	w.wantPrefix(all, "-FENCED election \""+p+"audit\"")
}

// Commands that are too long to be held are judged key by key.
func TestRulesOfLongCommands(t *testing.T) {
	p := testenv.Name(t, "r")
	r := newRig(t, rigOptions{config: shardRules(t, p)})
	one := r.acquire(t, p+"orders-1")
	k1, k2 := p+"orders:1:x", p+"orders:2:x"
	long := strings.Repeat("x", 40_000)
	bulks := func(args ...string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
		}
		return strings.TrimSuffix(b.String(), "\r\n")
	}
	for i, c := range []struct {
		args  []string
		want  string
		bound bool
		ends  bool
	}{
		{[]string{"SET", k1, long}, "-FENCED ", false, false},
		{[]string{"SET", k1, long}, "+OK", true, false},
		{[]string{"SET", k2, long}, "-FENCED ", true, false},
		{[]string{"SET", p + "open:x", long}, "+OK", false, false},
		{[]string{"SET", p + "closed:x", long}, "-NOPERM ", true, false},
		{[]string{"SET", p + "orders:1:" + long, "1"}, "-NOPERM a key of more than 16 KiB", true, false},
		{[]string{"MSET", k1, "1", k1, long}, "+OK", true, false},
		{[]string{"MSET", k1, long, k2, "1"}, "-FENCED ", true, true},
		{[]string{"EVAL", "return 1 --" + long, "1", k1}, ":1", true, false},
		{[]string{"EVAL", "return 1 --" + long, "1", k2}, "-FENCED ", true, true},
		{[]string{"EVAL", "return 1 --" + long, "0"}, "-NOPERM it cannot be told", true, true},
		{[]string{"EVAL", "return 1", "1", k2, long}, "-FENCED ", true, false},
		{[]string{"EVAL", "return 1", "2", k1, k1, long}, ":1", true, false},
		{[]string{"EVAL", "return 1", "1", k1, k2, long}, ":1", true, false}, // k2 is an argument
		{[]string{"BITOP", "OR", k1, k2, long}, ":", true, false},
		{[]string{"BITOP", "OR", k2, k1, long}, "-FENCED ", true, false},
		{[]string{"SORT", k2, "BY", long, "STORE", k1}, "-NOPERM it cannot be told", true, false},
		{[]string{"SET", "fenceproxy:{x}:fence", long}, "-NOPERM ", true, false},
		{[]string{"NOSUCH", k1, long}, "-NOPERM it cannot be told", true, false},
		{[]string{"GET", long}, "$-1", false, false},
	} {
		w := dial(t, r.addr)
		if c.bound {
			w.want("FENCE BIND "+p+"orders-1 "+one.Token.Reveal(), "+OK\r\n")
		}
		w.send(bulks(c.args...))
		got := w.reply()
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%d: %s %.60q...: got %.300q, want %q", i, c.args[0], c.args[1], got, c.want)
		}
		if c.ends {
			if rest := w.rest(); rest != "" {
				t.Errorf("%d: after the end %q", i, rest)
			}
			continue
		}
		w.want("PING", "+PONG\r\n")
	}
	if n := r.control.Exists(t.Context(), k2).Val(); n != 0 {
		t.Error("what was refused was written")
	}
}

// Refused commands are answered in their places, and many at once without the memory of all.
func TestRulesInPipelines(t *testing.T) {
	p := testenv.Name(t, "r")
	r := newRig(t, rigOptions{config: shardRules(t, p)})
	w := dial(t, r.addr)
	var b strings.Builder
	const n = 500
	for i := range n {
		fmt.Fprintf(&b, "SET %sorders:%d:x 1\r\nSET %sopen:x %d\r\n", p, i, p, i)
	}
	b.WriteString("CLIENT REPLY SKIP\r\nSET " + p + "orders:1:x 1\r\nSET " + p + "orders:last:x 1")
	w.send(b.String())
	for i := range n {
		if got := w.reply(); !strings.HasPrefix(got, "-FENCED write refused") {
			t.Fatalf("%d: %q", i, got)
		}
		if got := w.reply(); got != "+OK\r\n" {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if got := w.reply(); !strings.Contains(got, "orders:last:x") {
		t.Errorf("the last: %q", got)
	}
}

// A sidecar listener with rules: its sessions write what the listener's election rules, and
// more with credentials of their own.
func TestRulesOfASidecar(t *testing.T) {
	p := testenv.Name(t, "r")
	lead := &fakeLead{election: p + "audit"}
	rules := shardRules(t, p)
	r := newRig(t, rigOptions{config: func(c *resp.Config) { rules(c); c.Lead = lead }})
	w := dial(t, r.addr)
	w.wantPrefix("SET "+p+"audit:x 1", "-FENCED election \""+p+"audit\" rules key")
	w.want("SET "+p+"open:x 1", "+OK\r\n")
	g, one := r.acquire(t, p+"audit"), r.acquire(t, p+"orders-1")
	lead.token.Store(&g.Token)
	w.want("SET "+p+"audit:x 1", "+OK\r\n")
	w.wantPrefix("SET "+p+"orders:1:x 1", "-FENCED write refused: election \""+p+"orders-1\"")
	w.want("FENCE BIND "+p+"orders-1 "+one.Token.Reveal(), "+OK\r\n")
	w.want("RENAME "+p+"audit:x "+p+"orders:1:x", "+OK\r\n")
	long := strings.Repeat("x", 1<<20)
	other, key := dial(t, r.addr), p+"audit:x"
	other.send("*3\r\n$3\r\nSET\r\n$" + sprint(len(key)) + "\r\n" + key + "\r\n$" + sprint(len(long)) + "\r\n" + long)
	if got := other.reply(); got != "+OK\r\n" {
		t.Error(got)
	}
}
