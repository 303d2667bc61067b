package examples

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// consumers is the stage of the consumers, and how to start one.
func consumers(t *testing.T, ctx context.Context, database, program, module string) (*stage, func(name string) *worker) {
	t.Helper()
	s := newStageIn(t, ctx, "consumers", database, "fenceproxy.yaml")
	python := testenv.Python(t, ctx, module)
	env := []string{
		"FENCEPROXY=http://" + s.at("127.0.0.1:9180"), "PROXY=redis://" + s.at("127.0.0.1:6380"),
		"DATABASE=" + s.addresses.Replace(throughProxy) + database, leaseSeconds, "PYTHONDONTWRITEBYTECODE=1",
	}
	return s, func(name string) *worker {
		return s.start(t, ctx, name, "python3 "+program+" "+name, env, python, program, name)
	}
}

// change runs two consumers to a takeover of all partitions, and back.
func change(t *testing.T, start func(name string) *worker) {
	t.Helper()
	all := func(w *worker) {
		t.Helper()
		from := w.from
		for p := range 4 {
			w.from = from
			w.await(t, fmt.Sprintf("%s has partition %d with number", w.name, p))
		}
		w.await(t, w.name+" wrote")
		w.await(t, w.name+" wrote")
	}
	a := start("a")
	all(a)
	a.signal(syscall.SIGSTOP)
	b := start("b")
	all(b)
	a.signal(syscall.SIGCONT)
	from := a.from
	for p := range 4 {
		a.from = from
		a.await(t, fmt.Sprintf("a drops partition %d:", p))
	}
	b.await(t, "b wrote")
	b.end(t)
	all(a)
	a.end(t)
}

func TestConsumersOfAQueue(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s, start := consumers(t, ctx, "pgqueue", "pg_queue.py", "psycopg")
	c := connect(t, ctx, testenv.SharedPostgres(t).DSN(servers.Superuser, s.database))
	const orders = 10000
	exec1(t, ctx, c, fmt.Sprintf("INSERT INTO queue (partition, body) SELECT n %% 4, n FROM generate_series(1, %d) n", orders))
	change(t, start)
	var left int
	if err := c.QueryRow(ctx, "SELECT count(*) FROM queue").Scan(&left); err != nil {
		t.Fatal(err)
	}
	done := s.journal(t, ctx)
	if left+len(done) != orders {
		t.Errorf("%d orders are left and %d done of %d", left, len(done), orders)
	}
	partitions := map[string][]entry{}
	for _, e := range done {
		worker, partition, _ := strings.Cut(e.Worker, " ")
		partitions[partition] = append(partitions[partition], entry{worker, e.Number})
	}
	for _, p := range partitions {
		inOrder(t, p, "aba")
	}
	if len(partitions) != 4 {
		t.Errorf("%d partitions", len(partitions))
	}
}

func TestConsumersOfStreams(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	s, start := consumers(t, ctx, "redisstream", "redis_stream.py", "redis")
	r := s.redis(t)
	if _, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := range 10000 {
			p.XAdd(ctx, &redis.XAddArgs{Stream: fmt.Sprintf("orders:%d:in", n%4), Values: []any{"body", n}})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	change(t, start)
	for p := range 4 {
		inOrder(t, s.stream(t, ctx, fmt.Sprintf("orders:%d:done", p)), "aba")
	}
}

// The broker gives partition 1 to another while the first still has it, and then takes
// both from a consumer that it does not hear of.
func TestConsumersOfABroker(t *testing.T) {
	t.Parallel()
	ctx := testenv.Context(t)
	_, start := consumers(t, ctx, "broker", "kafka.py", "json")
	a, b := start("a"), start("b")
	a.say(t, "assign 0 1")
	a.await(t, "a bound 1")
	b.say(t, "assign 1")
	b.await(t, "b waits: a has partition 1")
	a.say(t, "revoke 1")
	a.await(t, "a released 1")
	b.await(t, "b bound 1")
	a.signal(syscall.SIGSTOP)
	b.say(t, "assign 0")
	b.await(t, "b bound 0")
	a.signal(syscall.SIGCONT)
	a.await(t, "a lost 0:")
	for _, w := range []*worker{b, a} {
		w.say(t, "end")
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
}

// say writes a line to a worker's standard input.
func (w *worker) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		t.Fatal(err)
	}
}
