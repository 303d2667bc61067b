package gates

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// planVar holds the plan of a process of the race.
const planVar = "FENCEPROXY_TEST_GATES"

func TestMain(m *testing.M) {
	if text := os.Getenv(planVar); text != "" {
		var p plan
		err := json.Unmarshal([]byte(text), &p)
		switch {
		case err != nil:
		case p.Role == "gate":
			err = serveGate(p)
		default:
			err = consume(p)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, p.Role, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

// A process is one of the race, which is this very program.
type process struct {
	*exec.Cmd
	ended chan struct{}
}

func start(t testing.TB, p plan) *process {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	x := &process{exec.Command(os.Args[0]), make(chan struct{})}
	x.Env = append(os.Environ(), planVar+"="+string(text))
	x.Stdout, x.Stderr = io.Discard, t.Output()
	x.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = x.Wait(); close(x.ended) }()
	t.Cleanup(func() {
		_ = x.Process.Kill()
		<-x.ended
	})
	return x
}

// A race is consumers at two gates.
type race struct {
	t         *testing.T
	plan      plan
	dir       string
	consumers []*process
	started   int
}

func newRace(t *testing.T, partitions int) *race {
	t.Helper()
	r := &race{t: t, dir: t.TempDir(), plan: plan{
		Elections: "redis://" + testenv.SharedRedis(t).Addr, Prefix: testenv.Name(t, "race"),
		Partitions: partitions, Workers: 12, TTL: 3 * time.Second,
	}}
	return r
}

func address(t *testing.T) string {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// consumer starts one more.
func (r *race) consumer() *process {
	p := r.plan
	p.Role, p.Log = "consumer", filepath.Join(r.dir, fmt.Sprintf("%d.log", r.started))
	r.started++
	return start(r.t, p)
}

func (r *race) begin(consumers int) {
	for range consumers {
		r.consumers = append(r.consumers, r.consumer())
	}
}

// finish lets the consumers end in order.
func (r *race) finish() {
	for _, c := range r.consumers {
		_ = c.Process.Signal(syscall.SIGCONT)
		_ = c.Process.Signal(syscall.SIGTERM)
	}
	for _, c := range r.consumers {
		select {
		case <-c.ended:
		case <-testenv.Context(r.t).Done():
			r.t.Fatal("a consumer does not end")
		}
	}
}

const gateConfig = `elections: {backend: '%s'}
admin: {listen: %s}
gates:
  - {name: orders, election: '%s-{partition}', permit: %v, validate_every: %v}
log: {level: error}
`

// A gate is a process with a gate of the race.
type gate interface {
	Signal(sig syscall.Signal)
	Kill()
	Start(t testing.TB) // again, after Kill
}

// gate starts one: in the long form a fenceproxy serve, else this very program, which need
// not be built.
func (r *race) gate() gate {
	addr := address(r.t)
	r.plan.Gates = append(r.plan.Gates, "http://"+addr)
	if long() {
		return testenv.StartProxyOf(r.t, addr, fmt.Sprintf(gateConfig, r.plan.Elections, addr, r.plan.Prefix, permit, validateEvery))
	}
	return r.ownGate(addr, false)
}

func (r *race) ownGate(addr string, unleased bool) *ownGate {
	p := r.plan
	p.Role, p.Addr, p.Unleased = "gate", addr, unleased
	g := &ownGate{plan: p}
	g.Start(r.t)
	return g
}

type ownGate struct {
	plan plan
	*process
}

func (g *ownGate) Signal(sig syscall.Signal) { _ = g.Process.Signal(sig) }

func (g *ownGate) Kill() {
	g.Signal(syscall.SIGKILL)
	<-g.ended
}

func (g *ownGate) Start(t testing.TB) {
	g.process = start(t, g.plan)
	testenv.Eventually(t, "the gate listens", func() bool {
		c, err := net.Dial("tcp", g.plan.Addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func long() bool { return os.Getenv("FENCEPROXY_LONG") != "" }

// At no time two live bindings of one partition, whatever is paused and killed; and no loss
// is reported later than the permit.
func TestNoTwoLiveBindings(t *testing.T) {
	ctx := testenv.Context(t)
	length, least := 7*time.Second, 60
	if long() {
		length, least = 5*time.Minute, 3000
	}
	r := newRace(t, 64)
	gates := []gate{r.gate(), r.gate()}
	r.begin(8)

	began, end := now(), time.NewTimer(length)
	defer end.Stop()
	paused, killed := 0, 0
	var resume []func()
	goOn := func() {
		for _, f := range resume {
			f()
		}
		resume = nil
	}
	for over := false; !over; {
		step := time.NewTimer(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		select {
		case <-step.C:
		case <-end.C:
			over = true
		case <-ctx.Done():
			t.Fatal("too little time is left")
		}
		step.Stop()
		if rand.IntN(4) > 0 { // most pauses are longer than one step
			goOn()
		}
		switch i, g := rand.IntN(len(r.consumers)), rand.IntN(len(gates)); rand.IntN(12) {
		case 0, 1, 2, 3:
			p := r.consumers[i].Process
			_ = p.Signal(syscall.SIGSTOP)
			resume = append(resume, func() { _ = p.Signal(syscall.SIGCONT) })
			paused++
		case 4, 5, 6:
			gates[g].Signal(syscall.SIGSTOP)
			resume = append(resume, func() { gates[g].Signal(syscall.SIGCONT) })
			paused++
		case 7, 8:
			_ = r.consumers[i].Process.Kill()
			<-r.consumers[i].ended
			r.consumers[i] = r.consumer()
			killed++
		case 9:
			gates[g].Kill()
			gates[g].Start(t)
			killed++
		}
	}
	goOn()
	r.finish()

	all, refused := read(t, r.dir)
	var told, resigned int
	var latest time.Duration
	by := make(map[int]int)
	held := make(map[int]bool)
	for _, b := range all {
		by[b.gate]++
		held[b.partition] = true
		if b.told {
			told++
		}
		if b.resigned > 0 {
			resigned++
			latest = max(latest, b.to-b.resigned)
		}
	}
	t.Logf("%v: %d pauses, %d kills; %d bindings of %d partitions, by gate %v; %d losses told, %d of resigned tokens, the latest believed for %v; refused: %v",
		now()-began, paused, killed, len(all), len(held), by, told, resigned, latest, refused)
	for _, s := range overlaps(all) {
		t.Error(s)
	}
	if latest > permit {
		t.Errorf("a loss was reported after %v, later than the permit of %v", latest, permit)
	}
	if len(all) < least || by[0] == 0 || by[1] == 0 || told == 0 || resigned == 0 || refused["occupied"] == 0 || paused == 0 || killed == 0 {
		t.Error("too little happened for the race to prove anything")
	}
}

// The race can fail: gates without their lease bind a partition twice.
func TestGatesWithoutALeaseBindTwice(t *testing.T) {
	r := newRace(t, 4)
	for range 2 {
		addr := address(t)
		r.plan.Gates = append(r.plan.Gates, "http://"+addr)
		r.ownGate(addr, true)
	}
	r.begin(1)
	testenv.Eventually(t, "two believe in one partition", func() bool {
		all, _ := read(t, r.dir)
		return len(overlaps(all)) > 0
	})
	r.finish()
}
