package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// A place is one election on a real server, and a directory for what commands tell.
type runPlace struct {
	t    *testing.T
	ctx  context.Context    //nolint:containedctx // one test's
	link *electiontest.Link // between run and the server
	url  string             // of the backend, by the link
	b    election.Backend   // around the link
	id   string
	dir  string
}

func newRunPlace(t *testing.T) *runPlace {
	t.Helper()
	return newRunPlaceOn(t, electionServer{testenv.SharedRedis(t).Addr, func(addr string) string { return "redis://" + addr }})
}

func newRunPlaceOn(t *testing.T, s electionServer) *runPlace {
	t.Helper()
	link := electiontest.NewLink(t, s.addr)
	return &runPlace{
		t: t, ctx: testenv.Context(t), link: link, url: s.url(link.Addr()), b: openTest(t, s.url(s.addr)),
		id: testenv.Name(t, "run"), dir: t.TempDir(),
	}
}

// A holder is a fenceproxy run under way.
type holder struct {
	*exec.Cmd
	p      *runPlace
	output string // a file's name
	done   chan struct{}
}

// run starts fenceproxy run with a shell script, which finds the directory in $D and
// runs anew for each term.
func (p *runPlace) run(script string, flags ...string) *holder {
	p.t.Helper()
	args := append([]string{"run", "--election", p.id, "--backend", p.url}, flags...)
	h := &holder{Cmd: program(p.t, append(args, "--", "sh", "-c", script)...), p: p, done: make(chan struct{})}
	h.Env = append(h.Env, "D="+p.dir)
	// A file, not a pipe: Wait must not wait for whoever holds the other end.
	out, err := os.Create(filepath.Join(p.t.TempDir(), "output"))
	if err != nil {
		p.t.Fatal(err)
	}
	h.Stdout, h.Stderr, h.output = out, out, out.Name()
	if err := h.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { _ = h.Wait(); close(h.done) }()
	p.t.Cleanup(func() {
		_ = h.Process.Signal(syscall.SIGCONT)
		_ = h.Process.Signal(syscall.SIGKILL)
		<-h.done
		out.Close()
		if p.t.Failed() {
			p.t.Logf("fenceproxy run said:\n%s", h.said())
		}
	})
	return h
}

// said is what run and its command have printed so far.
func (h *holder) said() string {
	b, err := os.ReadFile(h.output)
	if err != nil {
		h.p.t.Fatal(err)
	}
	return string(b)
}

// ended waits for the end of fenceproxy run and compares its exit code.
func (h *holder) ended(code int) {
	h.p.t.Helper()
	select {
	case <-h.done:
		if got := h.ProcessState.ExitCode(); got != code {
			h.p.t.Errorf("exit code %d, want %d (%v)", got, code, h.ProcessState)
		}
	case <-h.p.ctx.Done():
		h.p.t.Fatal("fenceproxy run does not end")
	}
}

// lines waits until the file has so many lines, and returns its words.
func (p *runPlace) lines(file string, n int) []string {
	p.t.Helper()
	var text string
	p.until(file+" with "+strconv.Itoa(n)+" lines", func() bool {
		b, err := os.ReadFile(filepath.Join(p.dir, file))
		text = string(b)
		return err == nil && strings.Count(text, "\n") >= n
	})
	return strings.Fields(text)
}

func (p *runPlace) until(what string, f func() bool) {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-p.ctx.Done():
			p.t.Fatalf("%s: did not happen", what)
		case <-tick.C:
		}
	}
}

// pids reads process numbers that a script wrote.
func (p *runPlace) pids(n int) []int {
	p.t.Helper()
	var pids []int
	for _, w := range p.lines("pids", n) {
		pid, err := strconv.Atoi(w)
		if err != nil {
			p.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// alive are those of the processes that have not ended.
func alive(pids []int) (left []int) {
	for _, pid := range pids {
		if q, ok := readProcess(pid); ok && !q.ended {
			left = append(left, pid)
		}
	}
	return left
}

// takeover waits until another is granted the election, by a way that nothing ails.
func (p *runPlace) takeover() election.AcquireResult {
	p.t.Helper()
	g, _, _ := p.attempts()
	return g
}

// attempts is takeover, and says when the first attempt had ended and when the last
// that did not take over began: a busy server may take its time for each.
func (p *runPlace) attempts() (g election.AcquireResult, seen, last time.Time) {
	p.t.Helper()
	p.until("a takeover", func() bool {
		began := time.Now()
		var err error
		if g, err = p.b.Acquire(p.ctx, p.id, election.AcquireOptions{Owner: "other"}); err != nil {
			p.t.Fatal(err)
		}
		if g.Status == election.Acquired {
			return true
		}
		last = began
		if seen.IsZero() {
			seen = time.Now()
		}
		return false
	})
	return g, seen, last
}

// untold fails if a command was sent SIGTERM, where there was no time for that.
func (p *runPlace) untold() {
	p.t.Helper()
	if _, err := os.Stat(filepath.Join(p.dir, "told")); !errors.Is(err, os.ErrNotExist) {
		p.t.Errorf("the command was given time: %v", err)
	}
}

func (p *runPlace) status() election.StatusResult {
	p.t.Helper()
	st, err := p.b.Status(p.ctx, p.id)
	if err != nil {
		p.t.Fatal(err)
	}
	return st
}

// term is what the n-th command found in its environment.
func (p *runPlace) term(n int) (election.Token, int64) {
	p.t.Helper()
	words := p.lines("terms", n)[3*(n-1):]
	token, err := election.ParseToken(words[1])
	number, err2 := strconv.ParseInt(words[2], 10, 64)
	if err != nil || err2 != nil || words[0] != p.id {
		p.t.Fatalf("the environment had %q: %v, %v", words[0], err, err2)
	}
	return token, number
}

const (
	tellTerm = `echo $FENCE_ELECTION $FENCE_TOKEN $FENCE_NUMBER >> $D/terms; `
	tellPID  = `echo $$ >> $D/pids; `
)

func TestRunPassesTheExitCodeOn(t *testing.T) {
	for script, code := range map[string]int{"true": 0, "exit 7": 7, "exit 255": 255, "kill -9 $$": 137, "kill -15 $$": 143} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			p := newRunPlace(t)
			p.run(tellTerm + script).ended(code)
			if st := p.status(); st.Status != election.Vacant {
				t.Errorf("afterwards: %+v", st)
			}
		})
	}
}

// The command's token is the live one, under the name that the other commands read.
func TestRunGivesTheTermToTheCommand(t *testing.T) {
	t.Setenv(tokenEnv, "a-token-of-somebody-else")
	p := newRunPlace(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := p.run(tellTerm + self + ` election validate $FENCE_ELECTION && test "$(env | grep -c ^FENCE_TOKEN)" = 1; echo $? >> $D/code; read x < $D/go`)
	if err := syscall.Mkfifo(filepath.Join(p.dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	token, number := p.term(1)
	v, err := p.b.Validate(p.ctx, p.id, token)
	if err != nil || v.Standing != election.StandingCurrent || v.Number != number {
		t.Errorf("%+v, %v; the command's number is %d", v, err, number)
	}
	p.lines("code", 1)
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(h.Process.Pid) + "/cmdline")
	if err != nil || strings.Contains(string(cmdline), token.Reveal()) {
		t.Errorf("the process list shows the token: %v", err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "go"), []byte("\n"), 0); err != nil {
		t.Fatal(err)
	}
	h.ended(0)
}

// E13: the network says nothing any more. Everything that the command started has ended
// by the time that another may lead: those that ignore SIGTERM, those in a session of
// their own, and those whose parent is gone.
func TestE13AllProcessesEndBeforeTheLeaseDoes(t *testing.T) {
	for name, s := range electionServers(t) {
		t.Run(name, func(t *testing.T) { t.Parallel(); allProcessesEnd(t, newRunPlaceOn(t, s)) })
	}
}

func allProcessesEnd(t *testing.T, p *runPlace) {
	t.Helper()
	p.run(`trap "" TERM HUP`+"\n"+tellPID+tellTerm+`
		sleep 1000 & echo $! >> $D/pids
		setsid sh -c 'echo $$ >> $D/pids; sleep 1000 & echo $! >> $D/pids; wait' < /dev/null > /dev/null 2>&1 &
		sh -c 'setsid sh -c "echo \$\$ >> $D/pids; sleep 1000" < /dev/null > /dev/null 2>&1 &'
		sh -c 'trap - TERM; echo $$ >> $D/pids; kill -STOP $$' &
		while :; do sleep 0.01; done`, "--ttl", "3s")
	pids := p.pids(6)
	_, number := p.term(1)
	p.link.Stall()
	g := p.takeover()
	if left := alive(pids); len(left) > 0 {
		t.Errorf("another leads, and %d of %d processes live on: %v", len(left), len(pids), left)
	}
	if g.Number <= number {
		t.Errorf("number %d after %d", g.Number, number)
	}
}

// SIGTERM comes first, while there is trust to spare.
func TestRunEndsWithSIGTERMFirst(t *testing.T) {
	p := newRunPlace(t)
	h := p.run(`trap 'echo told >> $D/told; exit 0' TERM; `+tellTerm+`while :; do sleep 0.01; done`, "--ttl", "3s", "--once")
	p.term(1)
	p.link.Cut()
	p.lines("told", 1)
	if st := p.status(); st.Status != election.Held {
		t.Errorf("told when the lease was %+v", st)
	}
	h.ended(exitNo) // lost, whatever the command's code
}

// E2, E14: the record is another's. The command ends at once, without a chance to do
// more, and runs again with a new number when the leadership is back.
func TestRunLostLeadershipEndsTheCommandAtOnce(t *testing.T) {
	p := newRunPlace(t)
	const script = `trap 'echo told >> $D/told' TERM; ` + tellPID + tellTerm + `while :; do sleep 0.01; done`
	h := p.run(script, "--ttl", "3s")
	token, number := p.term(1)
	if _, err := p.b.Resign(p.ctx, p.id, token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	p.until("the command's end", func() bool { return len(alive(p.pids(1)[:1])) == 0 })
	if d := time.Since(asked); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	_, second := p.term(2)
	if second <= number {
		t.Errorf("number %d after %d", second, number)
	}
	_ = h.Process.Signal(syscall.SIGKILL)
	<-h.done

	once := p.run(script, "--ttl", "3s", "--once")
	token, _ = p.term(3)
	if _, err := p.b.Resign(p.ctx, p.id, token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	once.ended(exitNo)
	p.untold()
}

// E5: told to end, run passes that on and holds the leadership until the command has
// ended, for longer than a lease.
func TestRunHoldsOnWhileTheCommandWindsDown(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRunPlace(t)
			h := p.run(`trap 'echo told >> $D/told; sleep 2; exit 9' TERM INT; `+tellTerm+`while :; do sleep 0.01; done`, "--ttl", "1s")
			token, number := p.term(1)
			if err := h.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			p.lines("told", 1)
			told := time.Now()
			for ended := false; !ended; {
				select {
				case <-h.done:
					ended = true
				case <-time.After(50 * time.Millisecond):
					if v, err := p.b.Validate(p.ctx, p.id, token); err != nil || v.Number != number && time.Since(told) < 1900*time.Millisecond {
						t.Fatalf("after %v: %+v, %v", time.Since(told), v, err)
					}
				}
			}
			h.ended(9)
			if st := p.status(); st.Status != election.Vacant || st.Number != number {
				t.Errorf("afterwards: %+v", st)
			}
		})
	}
}

// E1: fenceproxy run is killed, and its command does not live on. Another, which makes
// attempts that do not wait, leads within the lease and one attempt.
func TestE1RunKilledEndsItsCommand(t *testing.T) {
	for name, s := range electionServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRunPlaceOn(t, s)
			const ttl = 2 * time.Second
			h := p.run(`trap '' TERM; `+tellPID+tellTerm+`while :; do sleep 0.01; done`, "--ttl", ttl.String())
			_, number := p.term(1)
			if st := p.status(); st.Number != number { // which makes the lease known, too
				t.Errorf("Status %+v, the command has number %d", st, number)
			}
			if err := h.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			p.until("the command's end", func() bool { return len(alive(p.pids(1))) == 0 })
			if d := time.Since(killed); d > time.Second {
				t.Errorf("the command lived on for %v", d)
			}
			g, seen, last := p.attempts()
			if d := last.Sub(seen); d > ttl+time.Second { // what was under way to the server when it was killed
				t.Errorf("an attempt did not take over %v after the first had seen the lease of %v", d, ttl)
			}
			if g.Number <= number {
				t.Errorf("number %d after %d", g.Number, number)
			}
		})
	}
}

// Stopped for longer than its lease, run cannot end the command, which goes on with the
// number of its term: that is what the fence is for. Continued, run ends it.
func TestRunStoppedEndsItsCommandWhenItWakes(t *testing.T) {
	for name, s := range electionServers(t) {
		t.Run(name, func(t *testing.T) { t.Parallel(); endsWhenItWakes(t, newRunPlaceOn(t, s)) })
	}
}

func endsWhenItWakes(t *testing.T, p *runPlace) {
	t.Helper()
	h := p.run(`trap 'echo told >> $D/told' TERM; `+tellPID+tellTerm+`while :; do sleep 0.01; done`, "--ttl", "2s", "--once")
	_, number := p.term(1)
	if err := h.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if g := p.takeover(); g.Number <= number {
		t.Errorf("number %d after %d", g.Number, number)
	}
	pids := p.pids(1)
	if len(alive(pids)) != 1 {
		t.Error("the command ended while run was stopped")
	}
	if err := h.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	woke := time.Now()
	p.until("the command's end", func() bool { return len(alive(pids)) == 0 })
	if d := time.Since(woke); d > time.Second {
		t.Errorf("woken, it took %v to end the command: no trust was left", d)
	}
	h.ended(exitNo)
	p.untold()
}

// What a command leaves behind ends with it, before the release.
func TestRunEndsWhatTheCommandLeaves(t *testing.T) {
	p := newRunPlace(t)
	h := p.run(`setsid sh -c 'trap "" TERM; echo $$ >> $D/pids; sleep 1000' < /dev/null > /dev/null 2>&1 &
		sleep 1000 & echo $! >> $D/pids
		while test "$(wc -l < $D/pids)" -lt 2; do sleep 0.01; done; exit 4`, "--ttl", "2s")
	h.ended(4)
	if left := alive(p.pids(2)); len(left) > 0 {
		t.Errorf("%d processes live on", len(left))
	}
	if st := p.status(); st.Status != election.Vacant {
		t.Errorf("afterwards: %+v", st)
	}
}

func TestRunPassesSignalsOn(t *testing.T) {
	p := newRunPlace(t)
	h := p.run(`for s in HUP QUIT USR1 USR2 WINCH CONT; do trap "echo $s >> \$D/told" $s; done; `+
		`trap 'echo INT >> $D/told; exit 5' INT; `+tellTerm+`while :; do sleep 0.01; done`, "--ttl", "5s")
	p.term(1)
	sigs := []syscall.Signal{
		syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGINT,
	}
	for i, s := range sigs {
		if err := h.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s != syscall.SIGTSTP { // which stops neither
			p.lines("told", min(i+1, len(sigs)-1))
		}
	}
	if got := strings.Join(p.lines("told", 7), " "); got != "HUP QUIT USR1 USR2 WINCH CONT INT" {
		t.Errorf("the command was told %q", got)
	}
	h.ended(5)
}

// Waiting, and giving up.
func TestRunWaits(t *testing.T) {
	p := newRunPlace(t)
	g := p.takeover()
	for _, wait := range []string{"0s", "300ms"} {
		h := p.run(tellTerm+"true", "--wait", wait)
		h.ended(exitNo)
	}
	h := p.run(tellTerm + "true")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		w := p.run(tellTerm+"true", "--owner", "waiting")
		p.until("its waiting", func() bool { return strings.Contains(w.said(), "waiting for ") })
		if err := w.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		w.ended(exitSignalled + int(sig))
	}
	p.link.Cut()
	for _, wait := range []string{"0s", "300ms"} {
		p.run(tellTerm+"true", "--wait", wait).ended(exitUnavailable)
	}
	p.link.Pass()
	if _, err := os.Stat(filepath.Join(p.dir, "terms")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a command ran: %v", err)
	}
	if _, err := p.b.Resign(p.ctx, p.id, g.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	h.ended(0)
	p.term(1)
}

// Whoever waits listens for a release.
func TestRunListens(t *testing.T) {
	p := newRunPlace(t)
	g := p.takeover()
	h := p.run(tellTerm + "true")
	c := goredis.NewClient(&goredis.Options{Addr: testenv.SharedRedis(t).Addr})
	defer c.Close()
	channel := "fenceproxy:{" + p.id + "}:released"
	p.until("a subscription", func() bool { return c.PubSubNumSub(p.ctx, channel).Val()[channel] == 1 })
	if _, err := p.b.Resign(p.ctx, p.id, g.Token, election.ResignOptions{}); err != nil {
		t.Fatal(err)
	}
	h.ended(0)
	p.term(1)
	p.until("its end", func() bool { return c.PubSubNumSub(p.ctx, channel).Val()[channel] == 0 })
}

func TestRunHoldsOff(t *testing.T) {
	p := newRunPlace(t)
	p.run("exit 6", "--hold-off", "10m").ended(6)
	if st := p.status(); st.Status != election.Vacant || st.HoldOff <= 0 {
		t.Errorf("afterwards: %+v", st)
	}
	// A backend that cannot says so, and nothing runs.
	c := program(t, "run", "--election", p.id, "--hold-off", "1s", "--", "touch", filepath.Join(p.dir, "ran"))
	c.Env = append(c.Env, "FENCEPROXY_ELECTIONS="+backends(t)["postgres"])
	out, err := c.CombinedOutput()
	if c.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), "not supported") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "ran")); err == nil {
		t.Error("the command ran")
	}
}

func TestRunThatCannot(t *testing.T) {
	script := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(script, []byte("x"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := newRunPlace(t)
	url := "redis://" + p.link.Addr()
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"no command":   {exitUsage, []string{"--election", "e"}},
		"dashes only":  {exitUsage, []string{"--election", "e", "--"}},
		"no election":  {exitUsage, []string{"true"}},
		"bad election": {exitUsage, []string{"--election", "or ders", "true"}},
		"bad TTL":      {exitUsage, []string{"--election", "e", "--ttl", "1ms", "true"}},
		"negative TTL": {exitUsage, []string{"--election", "e", "--ttl", "-1s", "true"}},
		"long grace":   {exitUsage, []string{"--election", "e", "--grace", "4s", "true"}},
		"minus grace":  {exitUsage, []string{"--election", "e", "--grace", "-1s", "true"}},
		"minus wait":   {exitUsage, []string{"--election", "e", "--wait", "-1s", "true"}},
		"not found":    {exitNotFound, []string{"--election", "e", "fenceproxy-no-such-command"}},
		"no such file": {exitNotFound, []string{"--election", "e", "--", "/nonesuch/command"}},
		"a directory":  {exitCannotRun, []string{"--election", "e", "--", "/"}},
		"no program":   {exitCannotRun, []string{"--election", p.id, "--", script}}, // the kernel says so, to a leader
	} {
		t.Run(name, func(t *testing.T) {
			cmd := program(t, append([]string{"run", "--backend", url}, c.args...)...)
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), "fenceproxy: ") {
				t.Errorf("exit code %d, want %d: %s", cmd.ProcessState.ExitCode(), c.code, out)
			}
		})
	}
	if st := p.status(); st.Status != election.Vacant {
		t.Errorf("afterwards: %+v", st)
	}
}
