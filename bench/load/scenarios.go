package load

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/fenceproxy/fenceproxy/bench"
)

// An opener opens the session of a number.
type opener func(ctx context.Context, t *Target, i int) (session, error)

// Units.
const (
	operations = "operations"
	connects   = "connections"
)

const ownTool = "fenceproxy"

// A kind is a load that this program makes.
type kind struct {
	name, title string
	needs       []Need
	open        opener
	each        float64 // operations or bytes of a request
	unit        string
}

// kinds are the loads of a wire.
func kinds(wire string) []kind {
	if wire == Postgres {
		return []kind{
			{"reads", "single-row reads, prepared", []Need{Prepared}, pgReads, 1, operations},
			{"writes", "single-row writes, prepared", []Need{Prepared, Writes}, pgWrites, 1, operations},
			{"mixed", "four reads to a write, prepared", []Need{Prepared, Writes}, pgMixed, 1, operations},
			{"pipeline", "pipelines of 14 reads and 2 writes", []Need{Prepared, Writes}, pgPipeline, 16, operations},
			{"simple", "a row by the simple protocol", nil, pgQuery("SELECT balance FROM " + pgTable + " WHERE id = 7"), 1, operations},
			{"copy-in", "COPY FROM STDIN", []Need{Writes}, openCopyIn, copyBytes, bench.Bytes},
			{"copy-out", "COPY TO STDOUT", nil, pgQuery(copyOut), copyBytes, bench.Bytes},
			{"large", "a large result", nil, pgQuery(largeRows), copyBytes, bench.Bytes},
			{"blocking", "from NOTIFY to its arrival", []Need{Writes, Blocking}, openNotify, 1, operations},
			{"connect", "connect, read, disconnect", nil, openConnecting, 1, connects},
			{"idle", "idle sessions", nil, openIdlePg, 1, bench.Sessions},
		}
	}
	return []kind{
		{"reads", "GET of 64 bytes", nil, redisRequests("reads"), 1, operations},
		{"writes", "SET of 64 bytes", []Need{Writes}, redisRequests("writes"), 1, operations},
		{"mixed", "four GET to a SET", []Need{Writes}, redisRequests("mixed"), 1, operations},
		{"pipeline", "pipelines of 13 GET and 3 SET", []Need{Writes}, redisRequests("pipeline"), 16, operations},
		{"large", "GET of 1 MB", nil, redisRequests("large"), redisLarge, bench.Bytes},
		{"blocking", "from LPUSH to BLPOP's answer", []Need{Writes, Blocking}, openBlocking, 1, operations},
		{"connect", "connect, read, disconnect", nil, openConnectingRedis, 1, connects},
		{"idle", "idle sessions", nil, openIdleRedis, 1, bench.Sessions},
	}
}

// wireName is for titles.
func wireName(wire string) string {
	if wire == Postgres {
		return "Postgres"
	}
	return "Redis"
}

// Kinds are the names of the loads of a wire.
func Kinds(wire string) []string {
	var names []string
	for _, k := range kinds(wire) {
		names = append(names, k.name)
	}
	return names
}

// Closed is a scenario in which clients each wait for their answer: it finds the
// throughput.
func Closed(wire, name string, clients int) (*Spec, error) {
	for _, k := range kinds(wire) {
		if k.name == name && name != "idle" {
			return &Spec{
				Name:  fmt.Sprintf("%s/%s/closed/%d", wire, name, clients),
				Title: fmt.Sprintf("%s: %s, %d %s", wireName(wire), k.title, clients, plural(clients, "client")),
				Wire:  wire, Unit: k.unit, Tool: ownTool, Clients: clients, Needs: k.needs,
				work: &ownWork{k},
			}, nil
		}
	}
	return nil, fmt.Errorf("no load %q for %s: there are %v", name, wire, Kinds(wire))
}

// Open is a scenario in which requests are made at a rate: it finds the latency. Rate zero
// means half of what the slowest target does in a closed loop.
func Open(wire, name string, clients int, rate float64) (*Spec, error) {
	sp, err := Closed(wire, name, clients)
	if err != nil {
		return nil, err
	}
	sp.Name = fmt.Sprintf("%s/%s/open/%d", wire, name, clients)
	sp.Title += ", at a fixed rate"
	sp.Open, sp.Rate = true, rate
	return sp, nil
}

// Idle is a scenario of sessions that do nothing. It has one round: what a process keeps of
// sessions that have left would make the next round's look cheaper.
func Idle(wire string, n int) *Spec {
	for _, k := range kinds(wire) {
		if k.name == "idle" {
			return &Spec{
				Name:  fmt.Sprintf("%s/idle/%d", wire, n),
				Title: fmt.Sprintf("%s: %d %s", wireName(wire), n, k.title),
				Wire:  wire, Unit: k.unit, Tool: ownTool, Clients: n, Rounds: 1,
				work: &idleWork{k},
			}
		}
	}
	return nil
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// ownWork is a load that this program makes.
type ownWork struct{ kind kind }

// warmUp is how long a target is warmed up, beside how long a slice is.
const warmUp = 0.5

func (w *ownWork) prepare(ctx context.Context, sp *Spec, targets []*Target, d time.Duration) error {
	slowest := math.Inf(1)
	for _, t := range targets {
		o, err := w.run(ctx, sp, t, time.Duration(float64(d)*warmUp), false)
		if err != nil {
			return err
		}
		slowest = min(slowest, o.operations/o.seconds/w.kind.each)
	}
	if sp.Open && sp.Rate == 0 {
		sp.Rate = math.Round(slowest*w.kind.each/2*100) / 100
	}
	return nil
}

func (w *ownWork) slice(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error) {
	return w.run(ctx, sp, t, d, sp.Open)
}

func (w *ownWork) run(ctx context.Context, sp *Spec, t *Target, d time.Duration, open bool) (outcome, error) {
	all, err := openSessions(ctx, sp.Clients, func(ctx context.Context, i int) (session, error) { return w.kind.open(ctx, t, i) })
	if err != nil {
		return outcome{}, err
	}
	defer closeSessions(all)
	before, err := cpuOf(t.Processes)
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	if open {
		o, err = openLoop(ctx, all, d, sp.Rate/w.kind.each)
	} else {
		o, err = closedLoop(ctx, all, d)
	}
	if err != nil {
		return outcome{}, fmt.Errorf("target %s: %w", t.Name, err)
	}
	after, err := cpuOf(t.Processes)
	if err != nil {
		return outcome{}, err
	}
	o.cpu = less(after, before)
	o.operations *= w.kind.each
	return o, nil
}

// idleWork opens sessions that do nothing.
type idleWork struct{ kind kind }

// prepare lets each process take what it takes once.
func (w *idleWork) prepare(ctx context.Context, _ *Spec, targets []*Target, _ time.Duration) error {
	for _, t := range targets {
		all, err := w.open(ctx, t, 20)
		if err != nil {
			return err
		}
		closeSessions(all)
	}
	return nil
}

func (w *idleWork) open(ctx context.Context, t *Target, n int) ([]session, error) {
	return openSessions(ctx, n, func(ctx context.Context, i int) (session, error) { return w.kind.open(ctx, t, i) })
}

// slice lets all come to rest before each look: a session at rest is not one that has logged in
// just now, and whoever gives memory back does so a little later.
func (w *idleWork) slice(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error) {
	rest := 3 * d
	if err := Pause(ctx, rest); err != nil {
		return outcome{}, err
	}
	before, err := memoryOf(t.Processes)
	if err != nil {
		return outcome{}, err
	}
	start := time.Now()
	all, err := w.open(ctx, t, sp.Clients)
	if err != nil {
		return outcome{}, err
	}
	defer closeSessions(all)
	o := outcome{seconds: time.Since(start).Seconds(), operations: float64(sp.Clients)}
	if err := Pause(ctx, rest); err != nil {
		return outcome{}, err
	}
	after, err := memoryOf(t.Processes)
	if err != nil {
		return outcome{}, err
	}
	o.memory = less(after, before)
	for name := range o.memory {
		o.memory[name] /= float64(sp.Clients)
	}
	return o, nil
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

var _ = []work{(*ownWork)(nil), (*idleWork)(nil), (*toolWork)(nil)}

// finish makes a slice of an outcome.
func (o outcome) finish(round, place int, target string) bench.Slice {
	s := bench.Slice{
		Round: round, Place: place, Target: target, Seconds: o.seconds, Operations: o.operations,
		Latency: o.latency, Unsent: o.unsent, CPU: o.cpu, Memory: o.memory,
	}
	if o.latencies != nil {
		s.Latency = o.latencies.Latency()
	}
	return s
}
