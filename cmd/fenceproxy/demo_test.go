package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// program returns a command line of fenceproxy as a process of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(testenv.Context(t), self, args...)
	c.Env = append(os.Environ(), beFenceproxy+"=1")
	return c
}

// TestDemo runs the demo as a user does: it succeeds only if it saw what it tells.
func TestDemo(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  []string
		want []string
	}{
		"postgres": {[]string{"--postgres"}, nil, []string{
			"Postgres 1", "SQLSTATE FP001", "STALE: number",
			"postgres   with fenceproxy   stale write refused",
			"postgres   without           stale write landed, as number ",
		}},
		"redis": {[]string{"--redis"}, nil, []string{
			"Redis 7", "FENCED ", "STALE: number",
			"redis      with fenceproxy   stale write refused",
			"redis      without           stale write landed, as number ",
		}},
		"no server on the machine": {nil, []string{"PATH=/nonexistent", "FENCEPROXY_POSTGRES_BIN=/nonexistent"}, []string{
			"This machine has no Postgres server, so the demo shows the Redis half alone.",
			"This is not a real Redis", "FENCED ", "STALE: number",
			"redis      with fenceproxy   stale write refused",
			"redis      without           stale write landed, as number ",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			cmd := program(t, append([]string{"demo", "--fast"}, c.args...)...)
			cmd.Env = append(cmd.Env, c.env...)
			cmd.Stdout, cmd.Stderr = &out, &errOut
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, &out, &errOut)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			if strings.Contains(out.String(), "\x1b[") {
				t.Error("colours in what is no terminal")
			}
		})
	}
}

// TestDemoWithoutItsServer: a half that was asked for and cannot be shown is a failure
// that says what to do.
func TestDemoWithoutItsServer(t *testing.T) {
	t.Setenv("FENCEPROXY_POSTGRES_BIN", "/nonexistent")
	r := command(t, "", "demo", "--postgres")
	if r.code != exitFailure || !strings.Contains(r.err, "apt-get install postgresql") {
		t.Errorf("%+v", r)
	}
}
