package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// An electionServer is the server of an election backend, or one of them, and the
// backend's URL for when that is found at another address.
type electionServer struct {
	addr string
	url  func(addr string) string
}

// electionServers are one of each kind of backend whose elections outlive a process.
func electionServers(t *testing.T) map[string]electionServer {
	t.Helper()
	pg := testenv.SharedPostgres(t)
	dsn := pg.DSN(servers.Superuser, "postgres")
	if r := command(t, "", "install", "--elections", "--dsn", dsn); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	kubeconfig := testenv.SharedKubeconfig(t)
	config, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	api := regexp.MustCompile(`https://([^"\s]+)`).FindSubmatch(config)[1]
	return map[string]electionServer{
		"redis":     {testenv.SharedRedis(t).Addr, func(addr string) string { return "redis://" + addr }},
		"valkey":    {testenv.SharedValkey(t).Addr, func(addr string) string { return "valkey://" + addr }},
		"postgres":  {pg.Addr, func(addr string) string { return strings.Replace(dsn, pg.Addr, addr, 1) }},
		"zookeeper": {testenv.SharedZooKeeper(t).Nodes[0].Addr, func(addr string) string { return "zookeeper://" + addr + "/cli" }},
		"kubernetes": {string(api), func(addr string) string {
			moved := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(moved, bytes.ReplaceAll(config, api, []byte(addr)), 0o600); err != nil {
				t.Fatal(err)
			}
			return "kubernetes:///default?kubeconfig=" + moved
		}},
	}
}

// backends are their URLs.
func backends(t *testing.T) map[string]string {
	t.Helper()
	urls := map[string]string{}
	for name, s := range electionServers(t) {
		urls[name] = s.url(s.addr)
	}
	return urls
}

// keys are the keys of a JSON object, sorted.
func keys(t *testing.T, text string) (map[string]any, string) {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	slices.Sort(names)
	return m, strings.Join(names, " ")
}

// TestALeadershipFromTheCommandLine follows a leadership from its beginning to its
// end, in JSON and in words.
func TestALeadershipFromTheCommandLine(t *testing.T) {
	for name, url := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FENCEPROXY_ELECTIONS", url)
			id := testenv.Name(t, "cli")
			file := filepath.Join(t.TempDir(), "token")
			// say runs an election command and checks its code and its answer's shape.
			say := func(code int, shape, call string, more ...string) map[string]any {
				t.Helper()
				args := append([]string{"election", call, id, "--json"}, more...)
				r := command(t, "", args...)
				if r.code != code || r.err != "" {
					t.Fatalf("%s: %+v", call, r)
				}
				m, got := keys(t, r.out)
				if got != shape || m["election"] != id {
					t.Fatalf("%s: got %s, want keys %s", call, r.out, shape)
				}
				return m
			}

			say(exitNo, "election outcome", "status")
			first := say(exitOK, "election number outcome owner remaining_ms", "acquire", "--owner", "me", "--ttl", "1m", "--save-token", file)
			if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("token file: %v, %v", info, err)
			}
			busy := say(exitNo, "election number outcome owner reason remaining_ms", "acquire")
			if busy["reason"] != "held" || busy["owner"] != "me" || busy["number"] != first["number"] {
				t.Errorf("busy: %v", busy)
			}
			again := say(exitOK, "election number outcome owner remaining_ms", "acquire", "--owner", "me", "--token-file", file, "--save-token", file)
			if again["number"] != first["number"] {
				t.Errorf("asked again: %v, first %v", again, first)
			}
			say(exitOK, "election number outcome remaining_ms", "renew", "--token-file", file)
			say(exitOK, "election number outcome owner remaining_ms", "status")
			token, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(tokenEnv, strings.TrimSpace(string(token)))
			if v := say(exitOK, "election number outcome owner remaining_ms", "validate"); v["outcome"] != "current" {
				t.Errorf("validate: %v", v)
			}
			say(exitOK, "election outcome", "resign")
			if r := say(exitNo, "election outcome", "resign"); r["outcome"] != "not-owner" {
				t.Errorf("resign: %v", r)
			}
			if v := say(exitNo, "election outcome", "validate"); v["outcome"] != "vacant" {
				t.Errorf("validate: %v", v)
			}
			if r := say(exitNo, "election outcome", "renew"); r["outcome"] != "lost" {
				t.Errorf("renew: %v", r)
			}
			second := say(exitOK, "election number outcome owner remaining_ms token", "acquire", "--owner", "you", "--min-fencing", "9000000000000000")
			if second["number"].(float64) < 9000000000000000 {
				t.Errorf("floor: %v", second)
			}
			if v := say(exitNo, "election number outcome owner remaining_ms", "validate"); v["outcome"] != "stale" || v["owner"] != "you" {
				t.Errorf("validate: %v", v)
			}

			// In words, and with the token from standard input.
			r := command(t, second["token"].(string)+"\n", "election", "resign", id, "--token-file", "-")
			if r.code != exitOK || r.out != "released: nobody leads "+id+"\n" {
				t.Errorf("%+v", r)
			}
			for call, want := range map[string]string{"status": "vacant: nobody leads ", "validate": "vacant: nobody leads ", "renew": "lost: this token no longer leads "} {
				if r := command(t, "", "election", call, id); r.code != exitNo || r.out != want+id+"\n" {
					t.Errorf("%s: %+v", call, r)
				}
			}
			r = command(t, "", "election", "acquire", id, "--owner", "me")
			if r.code != exitOK || !strings.HasPrefix(r.out, "acquired: me leads "+id+" with number ") || !strings.Contains(r.out, "\ntoken: ") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestATokenThatCannotBeSavedIsGivenBack(t *testing.T) {
	url := "redis://" + testenv.SharedRedis(t).Addr
	id := testenv.Name(t, "cli")
	r := command(t, "", "election", "acquire", id, "--backend", url, "--save-token", filepath.Join(t.TempDir(), "no", "such", "folder"))
	if r.code != exitFailure || r.out != "" {
		t.Errorf("%+v", r)
	}
	if r := command(t, "", "election", "status", id, "--backend", url); r.code != exitNo {
		t.Errorf("still held: %+v", r)
	}
}

func TestHoldOff(t *testing.T) {
	t.Setenv("FENCEPROXY_ELECTIONS", "redis://"+testenv.SharedRedis(t).Addr)
	id := testenv.Name(t, "cli")
	got, _ := keys(t, command(t, "", "election", "acquire", id, "--json").out)
	t.Setenv(tokenEnv, got["token"].(string))
	if r := command(t, "", "election", "resign", id, "--hold-off", "1m"); r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	busy, shape := keys(t, command(t, "", "election", "acquire", id, "--json").out)
	if busy["reason"] != "hold-off" || shape != "election outcome reason remaining_ms" {
		t.Errorf("%v", busy)
	}
	if r := command(t, "", "election", "acquire", id); r.code != exitNo || !strings.HasPrefix(r.out, "busy: "+id+" is held off for another ") {
		t.Errorf("%+v", r)
	}
	if r := command(t, "", "election", "status", id); r.code != exitNo || !strings.Contains(r.out, "which is held off for another ") {
		t.Errorf("%+v", r)
	}
}
