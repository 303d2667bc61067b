package respdiff

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/policy"
)

// byHand are calls where the documentation does not suffice: an entry is one call, words
// separated by spaces; with "|" between, calls that follow each other on one connection.
var byHand = map[string][]string{
	"client|reply":            {"CLIENT REPLY SKIP|CLIENT REPLY ON", "CLIENT REPLY OFF|SET str 1|CLIENT REPLY ON"},
	"multi":                   {"MULTI|GET str|EXEC", "MULTI|SET str 1|DISCARD", "MULTI x"},
	"exec":                    {"EXEC", "MULTI|EXEC"},
	"discard":                 {"DISCARD", "MULTI|DISCARD"},
	"xread":                   {"XREAD COUNT 1 STREAMS stm 0", "XREAD BLOCK 10 STREAMS stm new 0 $"},
	"xreadgroup":              {"XREADGROUP GROUP grp con STREAMS stm >", "XREADGROUP GROUP grp con COUNT 1 BLOCK 10 NOACK STREAMS stm 0"},
	"command|getkeys":         {"COMMAND GETKEYS MSET a 1 b 2", "COMMAND GETKEYS GET"},
	"command|getkeysandflags": {"COMMAND GETKEYSANDFLAGS SET a 1", "COMMAND GETKEYSANDFLAGS GET"},
	"function|restore":        {"FUNCTION RESTORE x", "FUNCTION RESTORE x FLUSH"},
	"restore":                 {"RESTORE dst 0 x", "RESTORE str 0 x REPLACE", "RESTORE dst -1 x ABSTTL IDLETIME 5"},
	"restore-asking":          {"RESTORE-ASKING dst 0 x"},
	"migrate":                 {"MIGRATE 127.0.0.1 1 dst 0 10", "MIGRATE 127.0.0.1 1 nosuch 0 10"},
	"bitop":                   {"BITOP AND dst bits str", "BITOP NOT dst bits"},
	"zadd":                    {"ZADD zst 5 a 6 d", "ZADD zst XX CH INCR 1 a", "ZADD zst GT 9 b"},
	"sort":                    {"SORT st", "SORT lst ALPHA DESC LIMIT 0 2", "SORT st STORE dst BY nosort"},
	"sort_ro":                 {"SORT_RO st", "SORT_RO lst ALPHA"},
	"object|freq":             {"OBJECT FREQ str"},
	"select":                  {"SELECT 1|SET str 1|SELECT 0", "SELECT 99"},
	"client|caching":          {"CLIENT TRACKING ON OPTIN|CLIENT CACHING YES", "CLIENT CACHING NO"},
	"client|tracking":         {"CLIENT TRACKING ON|GET str|CLIENT TRACKING OFF", "CLIENT TRACKING ON BCAST PREFIX x|SET y 1"},
	"lcs":                     {"MSET str abcd new abxd|LCS str new", "MSET str abcd new abxd|LCS str new IDX MINMATCHLEN 1 WITHMATCHLEN", "LCS str dst LEN"},
	"object|help":             {"OBJECT HELP"},
	"hello":                   {"HELLO", "HELLO 3|HGETALL hsh", "HELLO 2 AUTH default x SETNAME me", "HELLO 9"},
	"auth":                    {"AUTH default x"},
	"georadius":               {"GEORADIUS geo 14 38 200 km WITHCOORD WITHDIST WITHHASH COUNT 1 ASC", "GEORADIUS geo 14 38 200 km STORE dst"},
	"geosearch":               {"GEOSEARCH geo FROMLONLAT 14 38 BYRADIUS 200 km ASC", "GEOSEARCH geo FROMMEMBER a BYBOX 400 400 km DESC WITHDIST"},
	"geosearchstore":          {"GEOSEARCHSTORE dst geo FROMLONLAT 14 38 BYRADIUS 200 km STOREDIST"},
	"setrange":                {"SETRANGE str 2 xx"},
	"copy":                    {"COPY str dst", "COPY str dst DB 1 REPLACE"},
	"lset":                    {"LSET lst 0 x", "LSET lst 9 x"},
	"substr":                  {"SUBSTR str 0 1"},
	"xsetid":                  {"XSETID stm 9-9", "XSETID stm 9-9 ENTRIESADDED 5 MAXDELETEDID 1-1"},
	"xgroup|create":           {"XGROUP CREATE stm g2 0", "XGROUP CREATE dst g2 $ MKSTREAM ENTRIESREAD 1"},
	"xautoclaim":              {"XAUTOCLAIM stm grp con 0 0", "XAUTOCLAIM stm grp con 0 0 COUNT 1 JUSTID"},
	"xclaim":                  {"XCLAIM stm grp con 0 1-1", "XCLAIM stm grp con 0 1-1 JUSTID"},
	"xpending":                {"XPENDING stm grp", "XPENDING stm grp IDLE 0 - + 5 con"},
	"hexpire":                 {"HEXPIRE hsh 100 FIELDS 1 f", "HEXPIRE hsh 100 NX FIELDS 2 f g"},
	"hincrby":                 {"HINCRBY hsh f 5"},
	"append":                  {"APPEND str x"},
	"script|debug":            {"SCRIPT DEBUG YES"},
	"acl|dryrun":              {"ACL DRYRUN default get str"},
	"psync":                   {"PSYNC ? -1"},
	"vadd":                    {"VADD vec VALUES 3 1 0 0 a", "VADD vec REDUCE 2 VALUES 3 1 0 0 b SETATTR x"},
	"vcard":                   {"VCARD vec"}, "vdim": {"VADD vec VALUES 2 1 0 a|VDIM vec", "VDIM vec"},
	"vemb":     {"VADD vec VALUES 2 1 0 a|VEMB vec a"},
	"vgetattr": {"VADD vec VALUES 2 1 0 a SETATTR {}|VGETATTR vec a"},
	"vsetattr": {"VADD vec VALUES 2 1 0 a|VSETATTR vec a {}"},
	"vsim":     {"VADD vec VALUES 2 1 0 a|VSIM vec VALUES 2 1 0 WITHSCORES"},
	"vrem":     {"VADD vec VALUES 2 1 0 a|VREM vec a"},
	"vinfo":    {"VINFO vec"}, "vlinks": {"VADD vec VALUES 2 1 0 a|VLINKS vec a"},
	"vrandmember": {"VADD vec VALUES 2 1 0 a|VRANDMEMBER vec"},
	"vismember":   {"VADD vec VALUES 2 1 0 a|VISMEMBER vec a"}, "vrange": {"VADD vec VALUES 2 1 0 a|VRANGE vec - +"},
	"_vectest": {"_VECTEST"},
}

// byShape are the commands whose answers are never twice the same, and why: of these the
// types, the nesting and the order are compared, and not the values.
var byShape = map[string]string{
	"time": "the time", "lastsave": "the time", "expiretime": "", "info": "numbers of the server's", "role": "numbers of the server's",
	"client|id": "each connection has its own", "client|list": "other connections", "client|info": "tested by histories",
	"randomkey": "random", "srandmember": "random", "hrandfield": "random", "zrandmember": "random", "spop": "random", "vrandmember": "random",
	"acl|genpass": "random", "acl|log": "times", "scan": "the order depends on what was there before", "keys": "the order depends on what was there before",
	"memory|stats": "memory", "memory|malloc-stats": "memory", "memory|usage": "memory", "memory|doctor": "memory",
	"latency|doctor": "times", "latency|histogram": "times", "latency|history": "times", "latency|latest": "times", "latency|graph": "times",
	"slowlog|get": "times", "slowlog|len": "times", "commandlog|get": "times", "commandlog|len": "times",
	"object|idletime": "times", "object|freq": "times", "lolwut": "random", "module|list": "memory",
	"ttl": "times", "pttl": "times", "httl": "times", "hpttl": "times", "hexpire": "", "xinfo|consumers": "times", "xinfo|stream": "times", "xinfo|groups": "",
	"xpending": "times", "xadd": "ids made of times", "function|stats": "times", "script|show": "", "dump": "", "dbsize": "",
	"vsim": "approximate", "vemb": "", "vlinks": "random", "vinfo": "ids",
}

// byKind are those of which not even the length of an answer is always the same.
var byKind = []string{"scan", "vlinks"}

// A call is one connection's calls of a command, or of several.
type call struct {
	names []string
	cmds  [][]string
}

// plan is all calls, by the classes of the policy.
type plan struct {
	table map[string]*policy.RedisCommand
	calls map[string][]call // by command
	group map[string]string
}

func newPlan(t *testing.T, c *redis.Client) *plan {
	t.Helper()
	ctx := testenv.Context(t)
	do := func(args ...any) *redis.Cmd { return c.Do(ctx, args...) }
	list, err := do("COMMAND").Slice()
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{table: make(map[string]*policy.RedisCommand), calls: make(map[string][]call), group: make(map[string]string)}
	for _, e := range list {
		cmd, err := policy.ParseRedisCommand(e)
		if err != nil {
			t.Fatal(err)
		}
		p.table[cmd.Name] = cmd
		for _, s := range cmd.Subcommands() {
			p.table[s.Name] = s
		}
	}
	known, err := docs(do)
	if err != nil {
		t.Fatal(err)
	}
	for name := range p.table {
		d, ok := known[name]
		if !ok {
			d = doc{name: name, group: "generic"}
		}
		p.group[name] = d.group
		for _, line := range byHand[name] {
			k := call{names: []string{name}}
			for part := range strings.SplitSeq(line, "|") {
				k.cmds = append(k.cmds, strings.Fields(part))
			}
			p.calls[name] = append(p.calls[name], k)
		}
		if byHand[name] == nil || len(d.args) > 0 && !stateful(d.group) {
			for _, cmd := range d.calls() {
				p.calls[name] = append(p.calls[name], call{names: []string{name}, cmds: [][]string{cmd}})
			}
		}
	}
	return p
}

// stateful reports whether commands of a group may change the connection, so that each call
// has one of its own.
func stateful(group string) bool {
	return slices.Contains([]string{"connection", "pubsub", "transactions", "server", "scripting", "cluster", "sentinel"}, group)
}

// connections puts calls together that one connection makes.
func (p *plan) connections(class policy.RedisClass) []call {
	var all []call
	var together call
	for _, name := range sorted(keysOf(p.table)) {
		if p.table[name].Class != class {
			continue
		}
		_, shape := byShape[name]
		for _, k := range p.calls[name] {
			if stateful(p.group[name]) || shape || len(k.cmds) > 1 {
				all = append(all, k)
				continue
			}
			together.names = append(together.names, name)
			together.cmds = append(together.cmds, k.cmds[0])
			if len(together.cmds) == 60 {
				all, together = append(all, together), call{}
			}
		}
	}
	if len(together.cmds) > 0 {
		all = append(all, together)
	}
	return all
}

func keysOf[V any](m map[string]V) []string {
	var all []string
	for k := range m {
		all = append(all, k)
	}
	return all
}

// make makes the calls on one connection and returns the answers as they are compared.
func (p place) make(ctx context.Context, k call, as, proto, mode string) (got [][]byte, data string, err error) {
	if err := p.clear(ctx); err != nil {
		return nil, "", err
	}
	for _, cmd := range [][]any{{"SCRIPT", "LOAD", seed}, {"SCRIPT", "LOAD", "return 1"}, {"FUNCTION", "LOAD", library}, {"EVAL", seed, 0}} {
		if err := p.super.Do(ctx, cmd...).Err(); err != nil {
			return nil, "", err
		}
	}
	r := &run{place: p, as: as, proto: proto, joined: mode == "joined", side: &side{refused: make(map[string]int)}}
	if err := r.on("a"); err != nil {
		return nil, "", err
	}
	c := r.now
	defer c.close()
	each := len(k.names) > 1 && as != "reader" // the data anew before each
	for _, cmd := range k.cmds {
		if each {
			r.send(command("EVALSHA", testenv.ExpandCase("{{sha "+seed+"}}"), "0"))
		}
		r.send(command(cmd...))
	}
	c.flush()
	if k.names[0] == "quit" || k.names[0] == "shutdown" {
		err = c.end()
	} else {
		err = c.goodbye()
	}
	if err != nil {
		err = fmt.Errorf("%v: %w", k.cmds[0], err)
	}
	c.mu.Lock()
	for _, b := range c.got[1:] {
		if !proxysOwn(b) {
			got = append(got, r.side.normal(b))
		}
	}
	c.mu.Unlock()
	if err == nil {
		data, err = p.data(ctx)
	}
	return got, data, err
}

var longText = regexp.MustCompile(`… \(\d+ bytes, [0-9a-f]*\)`)

// shape is the types and the nesting of an answer.
func shape(b []byte) []byte {
	text := longText.ReplaceAllString(show(b), "")
	var out []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch ch := text[i]; {
		case ch == '"' && (i == 0 || text[i-1] != '\\'):
			if quoted = !quoted; quoted {
				out = append(out, '"')
			}
		case quoted, '0' <= ch && ch <= '9', ch == '-' && i > 0:
		default:
			out = append(out, ch)
		}
	}
	if len(out) > 0 && (out[0] == '+' || out[0] == '-') {
		return out[:1]
	}
	return out
}

// Every command and every subcommand that the server lists is called: what may pass is
// answered as by the server itself, what may not with the word that is documented.
func TestEveryCommand(t *testing.T) {
	onEach(t, func(t *testing.T, _ servers.RedisVersion, st *stage) {
		p := newPlan(t, st.direct.super)
		called, fine := make(map[string]bool), make(map[string]bool)
		for _, class := range []policy.RedisClass{policy.RedisRead, policy.RedisWrite, policy.RedisLeader} {
			for _, k := range p.connections(class) {
				for _, proto := range []string{"2", "3"} {
					st.callAs(t, k, "leader", proto, called, fine)
					if class == policy.RedisRead && p.reads(k) {
						st.callAs(t, k, "reader", proto, called, fine)
					}
				}
			}
		}
		st.refused(t, p, "reader", policy.RedisWrite, "-FENCED ")
		st.refused(t, p, "reader", policy.RedisLeader, "-FENCED ")
		st.refused(t, p, "reader", policy.RedisRefused, "-NOPERM ")
		st.refused(t, p, "leader", policy.RedisRefused, "-NOPERM ")
		passed := 0
		for name, cmd := range p.table {
			switch {
			case cmd.Class == policy.RedisRefused:
				continue
			case !called[name]:
				t.Errorf("%s was not called", name)
			case fine[name]:
				passed++
			default:
				t.Logf("%s was never answered without an error", name)
			}
		}
		t.Logf("%d commands, %d of them answered without an error", len(called), passed)
		if passed < len(called)*85/100 {
			t.Errorf("only %d of %d commands were answered without an error", passed, len(called))
		}
	})
}

// reads reports whether every one of the calls is a read.
func (p *plan) reads(k call) bool {
	for _, cmd := range k.cmds {
		name := strings.ToLower(cmd[0])
		c := p.table[name]
		if c != nil && c.Container && len(cmd) > 1 {
			c = p.table[name+"|"+strings.ToLower(cmd[1])]
		}
		if c == nil || c.Class != policy.RedisRead {
			return false
		}
	}
	return true
}

// callAs makes calls at the server and through the proxies, and compares.
func (st *stage) callAs(t *testing.T, k call, as, proto string, called, fine map[string]bool) {
	t.Helper()
	ctx := testenv.Context(t)
	want, wantData, err := st.direct.make(ctx, k, as, proto, "written")
	if err != nil {
		t.Errorf("%s, RESP%s, the server itself: %v", as, proto, err)
		return
	}
	st.note(k, as, want, called, fine)
	_, byTheShape := byShape[k.names[0]]
	modes := allModes
	if as == "reader" {
		modes = modes[:1]
	}
	if total := len(bytes.Join(want, nil)); total > 50_000 {
		modes = modes[:min(len(modes), 2)]
	}
	for _, mode := range modes {
		got, data, err := st.proxy[mode].make(ctx, k, as, proto, mode)
		if err != nil {
			t.Errorf("%s, RESP%s, %s: %v", as, proto, mode, err)
			continue
		}
		for i := range max(len(want), len(got)) {
			var x, y []byte
			if i < len(want) {
				x = want[i]
			}
			if i < len(got) {
				y = got[i]
			}
			if byTheShape {
				x, y = shape(x), shape(y)
				if slices.Contains(byKind, k.names[0]) {
					x, y = x[:min(1, len(x))], y[:min(1, len(y))]
				}
			}
			if !bytes.Equal(x, y) {
				t.Errorf("%s, RESP%s, %s: answer %d to %s:\nproxy  %.300s\nserver %.300s", as, proto, mode, i, k.at(i), show(y), show(x))
				break
			}
		}
		if data != wantData && !byTheShape {
			t.Errorf("%s, RESP%s, %s: %v left\nproxy  %s\nserver %s", as, proto, mode, k.cmds[0], data, wantData)
		}
	}
}

// at says which call answer i belongs to, where each has one.
func (k call) at(i int) string {
	if len(k.names) > 1 && i/2 < len(k.cmds) {
		return fmt.Sprintf("%.100q", k.cmds[i/2])
	}
	return fmt.Sprintf("%.100q", k.cmds)
}

// note notes which commands were called, and which were answered without an error.
func (st *stage) note(k call, as string, got [][]byte, called, fine map[string]bool) {
	step := 2 // the data anew, the answer
	if as == "reader" {
		step = 1
	}
	for i, name := range k.names {
		called[name] = true
		answers := got
		if len(k.names) > 1 {
			at := i*step + step - 1
			if at >= len(got) {
				return
			}
			answers = got[at : at+1]
		} else if len(got) > 1 && name != "quit" {
			answers = got[:len(got)-1]
		}
		for _, b := range answers {
			fine[name] = fine[name] || b[0] != '-'
		}
	}
}

// refused makes all calls of a class, which the proxy must refuse with a word.
func (st *stage) refused(t *testing.T, p *plan, as string, class policy.RedisClass, word string) {
	t.Helper()
	k := call{names: []string{"", ""}}
	for _, name := range sorted(keysOf(p.table)) {
		if p.table[name].Class == class {
			for _, x := range p.calls[name] {
				k.cmds = append(k.cmds, x.cmds[len(x.cmds)-1])
			}
		}
	}
	if len(k.cmds) == 0 {
		return
	}
	ctx := testenv.Context(t)
	place := st.proxy["joined"]
	_, before, err := place.make(ctx, call{names: []string{"echo"}, cmds: [][]string{{"ECHO", "x"}}}, as, "2", "joined")
	if err != nil {
		t.Fatal(err)
	}
	r := k
	r.names = []string{"refused"}
	got, after, err := place.make(ctx, r, as, "2", "joined")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(k.cmds)+1 {
		t.Errorf("%s: %d answers to %d refused commands", as, len(got)-1, len(k.cmds))
		return
	}
	for i, cmd := range k.cmds {
		if !bytes.HasPrefix(got[i], []byte(word)) {
			t.Errorf("%s: %.100q was answered %.200q, not %q", as, cmd, got[i], word)
		}
	}
	if before != after {
		t.Errorf("refused commands changed the data: %s, before %s", after, before)
	}
}
