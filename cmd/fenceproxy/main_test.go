package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// beFenceproxy makes the test binary the program itself, for tests that need real
// processes.
const beFenceproxy = "FENCEPROXY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(beFenceproxy) != "" && len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
	}
	testenv.Main(m)
}

// result is how a command ended.
type result struct {
	code     int
	out, err string
}

// command runs a command line in this process.
func command(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(testenv.Context(t), args, strings.NewReader(stdin), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"fenceproxy":        {},
		"serve":             {"serve"},
		"check":             {"check"},
		"install":           {"install"},
		"election":          {"election"},
		"election-acquire":  {"election", "acquire"},
		"election-renew":    {"election", "renew"},
		"election-resign":   {"election", "resign"},
		"election-status":   {"election", "status"},
		"election-validate": {"election", "validate"},
		"election-watch":    {"election", "watch"},
		"run":               {"run"},
		"demo":              {"demo"},
		"bench":             {"bench"},
		"bench-run":         {"bench", "run"},
		"bench-own":         {"bench", "own"},
		"bench-peers":       {"bench", "peers"},
		"bench-elections":   {"bench", "elections"},
		"bench-fence":       {"bench", "fence"},
		"bench-check":       {"bench", "check"},
		"bench-show":        {"bench", "show"},
		"version":           {"version"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, "", append(args, "--help")...)
			if r.code != exitOK || r.err != "" {
				t.Errorf("code %d, stderr %q", r.code, r.err)
			}
			golden(t, filepath.Join("testdata", "help", name+".txt"), r.out)
		})
	}
	if r := command(t, ""); r.code != exitOK || !strings.HasPrefix(r.out, "Usage: fenceproxy <command>") {
		t.Errorf("no arguments: %+v", r)
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(go test ./cmd/fenceproxy -update rewrites it)", file, got, want)
	}
}

func TestUsageErrors(t *testing.T) {
	const secret = "secretsecretsecretsecretsecretsecretsecret0"
	t.Setenv("FENCEPROXY_ELECTIONS", "")
	for name, args := range map[string][]string{
		"unknown command":  {"nonesuch"},
		"unknown flag":     {"version", "--nonesuch"},
		"no backend":       {"election", "status", "orders"},
		"odd backend":      {"election", "status", "orders", "--backend", "mysql://u:hunter2@h"},
		"no URL":           {"election", "status", "orders", "--backend", "local host"},
		"no token":         {"election", "renew", "orders", "--backend", "redis://127.0.0.1:1"},
		"bad id":           {"election", "status", "or ders", "--backend", "redis://127.0.0.1:1"},
		"bad TTL":          {"election", "acquire", "orders", "--backend", "redis://127.0.0.1:1", "--ttl", "1ms"},
		"bad owner":        {"election", "acquire", "orders", "--backend", "redis://127.0.0.1:1", "--owner", "a b"},
		"bad number":       {"election", "acquire", "orders", "--backend", "redis://127.0.0.1:1", "--min-fencing", "-1"},
		"no such file":     {"election", "renew", "orders", "--backend", "redis://127.0.0.1:1", "--token-file", "nonesuch"},
		"token argument":   {"election", "renew", "orders", secret, "--backend", "redis://127.0.0.1:1"},
		"token flag":       {"election", "renew", "orders", "--token=" + secret, "--backend", "redis://127.0.0.1:1"},
		"memory":           {"election", "acquire", "orders", "--backend", "memory:"},
		"no configuration": {"serve"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(tokenEnv, "")
			r := command(t, "", args...)
			if r.code != exitUsage || r.err == "" || r.out != "" {
				t.Errorf("%+v", r)
			}
			if strings.Contains(r.err, secret) || strings.Contains(r.err, "hunter2") {
				t.Errorf("a secret in %q", r.err)
			}
		})
	}
	if r := command(t, secret[:4]+"!", "election", "renew", "orders", "--backend", "redis://127.0.0.1:1", "--token-file", "-"); r.code != exitUsage || strings.Contains(r.err, "secr!") {
		t.Errorf("malformed token: %+v", r)
	}
	for want, args := range map[string][]string{
		"set the environment variable FENCEPROXY_ELECTIONS":  {"election", "status", "orders"},
		"the leadership would end with this command":         {"election", "acquire", "orders", "--backend", "Memory:"},
		"--min-fencing: -5 is below 0\n":                     {"election", "acquire", "orders", "--backend", "redis://127.0.0.1:1", "--min-fencing", "-5"},
		"--min-fencing: \"many\" is not a whole number\nTry": {"election", "acquire", "orders", "--backend", "redis://127.0.0.1:1", "--min-fencing=many"},
	} {
		if r := command(t, "", args...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
}

// TestNoFlagTakesAToken: everybody on a machine can read its command lines.
func TestNoFlagTakesAToken(t *testing.T) {
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		for _, group := range leaf.AllFlags(false) {
			for _, f := range group {
				if strings.Contains(f.Name, "token") && f.Name != "token-file" && f.Name != "save-token" {
					t.Errorf("%s has a flag --%s", leaf.FullPath(), f.Name)
				}
			}
		}
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if r := command(t, "", arg); r.code != exitOK || !strings.HasPrefix(r.out, "fenceproxy ") || r.err != "" {
			t.Errorf("%s: %+v", arg, r)
		}
	}
}

func TestUnavailableBackend(t *testing.T) {
	// Nothing listens on port 1.
	r := command(t, "", "election", "status", "orders", "--backend", "redis://u:hunter2@127.0.0.1:1", "--timeout", "2s")
	if r.code != exitUnavailable || !strings.HasPrefix(r.err, "fenceproxy: ") || strings.Contains(r.err, "hunter2") {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	if code := run(ctx, []string{"election", "status", "orders", "--backend", "redis://127.0.0.1:1"}, nil, &out, &errOut); code == exitOK {
		t.Error("a cancelled command succeeded")
	}
}
