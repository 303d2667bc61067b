package respclients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A candidate is a program that campaigns, and tells what it does.
type candidate struct {
	name  string
	in    io.WriteCloser
	lines *bufio.Reader
	wait  func() error
}

// says reads a line that begins with a word, and returns what follows that.
func (c *candidate) says(t *testing.T, word string) string {
	t.Helper()
	line, err := c.lines.ReadString('\n')
	got, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if got != word {
		t.Fatalf("%s says %q (%v), want %s", c.name, line, err, word)
	}
	return rest
}

func (c *candidate) tell(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.in, "go on\n"); err != nil {
		t.Fatal(err)
	}
}

// Programs in several languages, with the usual clients of Redis and with those of HTTP, take
// one election over from each other, and the fence refuses the late writes of each.
func TestElectionsInEveryLanguage(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	server := testenv.SharedRedis(t)
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	const bearer = "the-token-of-the-admin-listener"
	id := testenv.Name(t, "lang") + "/eu:1"
	admin := fmt.Sprintf("127.0.0.1:%d", port)
	proxy := testenv.StartProxy(t, "redis://"+server.Addr+"/0", fmt.Sprintf("protocol: redis\nupstream: %s\ncontrol: redis://%s\nelection_commands: {}", server.Addr, server.Addr),
		fmt.Sprintf("admin: {listen: %s, token: %s}", admin, bearer), "guard: {validate_every: 100ms, permit: 1s}")
	env := []string{"HOST=127.0.0.1", "PORT=" + proxy.Addr[strings.LastIndex(proxy.Addr, ":")+1:], "ELECTION=" + id,
		"API=http://" + admin + "/v1/elections/" + strings.ReplaceAll(id, "/", "%2F"), "API_TOKEN=" + bearer,
		"PYTHONDONTWRITEBYTECODE=1", "NODE_PATH=" + testenv.NodeModules(t, "node-redis")}
	python, js := testenv.Testdata(t, "elections/campaign.py"), testenv.Testdata(t, "elections/campaign.js")
	programs := []struct {
		name string
		args []string
	}{
		{"redis-py", []string{testenv.Python(t, ctx, "redis"), python, "resp"}},
		{"urllib", []string{testenv.Python(t, ctx, "redis"), python, "http"}},
		{"ioredis", []string{testenv.Tool(t, "node"), js, "ioredis"}},
		{"node-redis", []string{testenv.Tool(t, "node"), js, "noderedis"}},
		{"fetch", []string{testenv.Tool(t, "node"), js, "http"}},
		{"curl", []string{testenv.Tool(t, "bash"), testenv.Testdata(t, "elections/campaign.sh"), t.TempDir()}},
	}
	testenv.Tool(t, "curl")
	testenv.Tool(t, "redis-cli")
	start := func(name string, args []string) *candidate {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(cmd.Environ(), append(env, "NAME="+name)...)
		cmd.Stderr = t.Output()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return &candidate{name, in, bufio.NewReader(out), cmd.Wait}
	}
	look := redis.NewClient(&redis.Options{Addr: server.Addr, DisableIdentity: true})
	defer look.Close()

	var before *candidate
	number := int64(0)
	for _, p := range append(programs, programs[0]) {
		c := start(p.name, p.args)
		if before != nil {
			if owner := c.says(t, "busy"); owner != before.name {
				t.Errorf("%s is told that %q leads, and %s does", c.name, owner, before.name)
			}
			before.tell(t)
			before.says(t, "released")
		}
		n, err := strconv.ParseInt(c.says(t, "leads"), 10, 64)
		if err != nil || n <= number {
			t.Errorf("%s leads with number %d after %d (%v)", c.name, n, number, err)
		}
		number = n
		c.says(t, "wrote")
		if before != nil {
			before.tell(t)
			before.says(t, "refused")
			if err := before.wait(); err != nil {
				t.Errorf("%s: %v", before.name, err)
			}
		}
		if got, err := look.Get(ctx, "written:"+id).Result(); err != nil || got != c.name {
			t.Errorf("%q (%v) is written, and %s leads", got, err, c.name)
		}
		before = c
	}
	before.tell(t)
	before.says(t, "released")
	_ = before.in.Close()
	_ = before.wait()
}

// redis-cli types ELECTION commands in both protocols, and shows errors by their first word.
func TestElectionsInRedisCLI(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	server := testenv.SharedRedis(t)
	proxy := testenv.StartProxy(t, "redis://"+server.Addr+"/0", fmt.Sprintf("protocol: redis\nupstream: %s\ncontrol: redis://%s\nelections: ['cli*']\nelection_commands: {allow: none, token: the-token-of-the-listener}", server.Addr, server.Addr))
	id := testenv.Name(t, "cli")
	cli := func(ctx context.Context, protocol, stdin string) string {
		_, port, _ := strings.Cut(proxy.Addr, ":")
		cmd := exec.CommandContext(ctx, testenv.Tool(t, "redis-cli"), "-p", port, "--no-raw", protocol)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	testenv.Holds(t, "unauthenticated", cli(ctx, "-2", "ELECTION STATUS "+id+"\nELECTION AUTH wrong\n"), "(error) UNAUTHENTICATED this needs", "(error) UNAUTHENTICATED this is not")
	const own = "a-token-of-this-test"
	const login = "ELECTION AUTH the-token-of-the-listener\n"
	testenv.Holds(t, "RESP2", cli(ctx, "-2", login+"ELECTION ACQUIRE "+id+" OWNER me TTL 60000 TOKEN "+own+"\nELECTION VALIDATE "+id+" "+own+
		"\nRESET\nELECTION STATUS "+id+"\nSET k v\n"), ` 3) "outcome"`, ` 4) "acquired"`, `"current"`, "RESET", "UNAUTHENTICATED", "FENCED")
	testenv.Holds(t, "RESP3", cli(ctx, "-3", login+"ELECTION STATUS "+id+"\nELECTION WATCH "+id+" 0 TIMEOUT 1000\nELECTION ACQUIRE "+id+"\nELECTION RENEW "+id+" "+own+
		"\nELECTION STATUS other\nELECTION RENEW "+id+"\nELECTION WATCH "+id+" x\nELECTION RESIGN "+id+" "+own+" HOLDOFF 60000\nELECTION ACQUIRE "+id+"\nELECTION WATCH "+id+" TIMEOUT 1\nELECTION HELP\n"),
		`"outcome" => "held"`, `"owner" => "me"`, `"changed" => (integer) 1`, `"outcome" => "busy"`, `"outcome" => "renewed"`, "(error) NOTSERVED", "(error) INVALIDARGUMENT",
		`"outcome" => "released"`, `"reason" => "hold-off"`, `"changed" => (integer) 0`, "ACQUIRE <election>")
}
