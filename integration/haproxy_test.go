package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// haproxyConfig routes writers to the sidecar that leads, and readers to the one that does
// not. docs/sidecar.md shows the same but for the ports.
const haproxyConfig = `
defaults
    mode tcp
    timeout connect 2s
    timeout client 1m
    timeout server 1m
    timeout check 1s

listen writers
    bind %s
    option httpchk
    http-check send meth OPTIONS uri /read-write
    http-check expect status 200
    default-server inter 200ms fall 1 rise 1 on-marked-down shutdown-sessions
    server a %[3]s check addr 127.0.0.1 port %[4]s
    server b %[5]s check addr 127.0.0.1 port %[6]s

listen readers
    bind %[2]s
    option httpchk
    http-check send meth OPTIONS uri /replica
    http-check expect status 200
    default-server inter 200ms fall 1 rise 1
    server a %[3]s check addr 127.0.0.1 port %[4]s
    server b %[5]s check addr 127.0.0.1 port %[6]s
`

// haproxy runs HAProxy in front of two sidecars, and returns its ports for writers and readers.
func (s *sidecarStage) haproxy(a, b *sidecarProxy) (writers, readers string) {
	s.t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // which is not on everybody's PATH
	}
	writers, readers = freeAddr(s.t), freeAddr(s.t)
	_, portA := split(a.admin)
	_, portB := split(b.admin)
	file := filepath.Join(s.t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, fmt.Appendf(nil, haproxyConfig, writers, readers, a.Addr, portA, b.Addr, portB), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(testenv.Context(s.t), program, "-db", "-f", file)
	cmd.Stdout, cmd.Stderr = s.t.Output(), s.t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("HAProxy (apt-get install haproxy): %v", err)
	}
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return writers, readers
}

// HAProxy asks who leads and routes a psql loop there; it follows a takeover.
func TestHAProxyFollowsTheLeader(t *testing.T) {
	s := newSidecarStage(t)
	a := s.sidecar("host-a")
	a.is(t, "/leader")
	b := s.sidecar("host-b")
	b.is(t, "/replica")
	writers, readers := s.haproxy(a, b)
	s.loop("writers", writers)
	s.writes("writers")
	led := func(addr string) (owner string) {
		c := s.connect(s.dsn(addr))
		if err := c.QueryRow(testenv.Context(t), "SHOW fence.status").Scan(&owner); err != nil {
			t.Fatal(err)
		}
		return owner
	}
	// HAProxy takes every server for one that is up before its first answer.
	testenv.Eventually(t, "readers go to the follower", func() bool { return led(readers) == "reader" })
	if got := led(writers); got != "bound" {
		t.Errorf("writers: %s", got)
	}
	a.Kill()
	b.is(t, "/primary")
	s.writes("writers")
	if got := led(writers); got != "bound" {
		t.Errorf("writers: %s", got)
	}
	s.ordered(2)
}
