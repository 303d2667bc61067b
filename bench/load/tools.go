package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/bench"
)

// ErrNotInstalled means that a program that makes load is missing.
var ErrNotInstalled = errors.New("not installed")

// A tool is a program that makes load.
type tool interface {
	// calibrate learns from a target how much work a slice is.
	calibrate(ctx context.Context, sp *Spec, t *Target, slice time.Duration) error
	run(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error)
}

// toolWork makes slices of a tool's runs.
type toolWork struct{ tool tool }

func (w *toolWork) prepare(ctx context.Context, sp *Spec, targets []*Target, d time.Duration) error {
	for i, t := range targets {
		if i == 0 {
			if err := w.tool.calibrate(ctx, sp, t, d); err != nil {
				return err
			}
		}
		if err := presents(ctx, sp.Wire, t); err != nil {
			return err
		}
	}
	return nil
}

// presents makes sure that sessions that are to be bound are: a tool would not notice that
// its reads are a reader's.
func presents(ctx context.Context, wire string, t *Target) error {
	if !t.Fenced() {
		return nil
	}
	open := openIdleRedis
	if wire == Postgres {
		open = openIdlePg
	}
	s, err := open(ctx, t, 0)
	if err == nil {
		s.close()
	}
	return err
}

func (w *toolWork) slice(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error) {
	before, err := cpuOf(t.Processes)
	if err != nil {
		return outcome{}, err
	}
	o, err := w.tool.run(ctx, sp, t, d)
	if err != nil {
		return outcome{}, fmt.Errorf("target %s: %w", t.Name, err)
	}
	after, err := cpuOf(t.Processes)
	if err != nil {
		return outcome{}, err
	}
	if o.cpu == nil {
		o.cpu = less(after, before)
	}
	return o, nil
}

// --- pgbench ---

// Pgbench is a closed loop of pgbench: script "select" (-S) or "simple-update" (-N), mode
// "prepared" or "simple". PreparePgbench makes its tables.
func Pgbench(script, mode string, clients int) *Spec {
	sp := &Spec{
		Name:  fmt.Sprintf("postgres/pgbench-%s/%s/%d", script, mode, clients),
		Title: fmt.Sprintf("Postgres: pgbench %s -M %s, %d %s", pgbenchFlag(script), mode, clients, plural(clients, "client")),
		Wire:  Postgres, Unit: "transactions", Tool: "pgbench", Clients: clients,
		work: &toolWork{&pgbench{script, mode}},
	}
	if mode == "prepared" {
		sp.Needs = append(sp.Needs, Prepared)
	}
	if script != "select" {
		sp.Needs = append(sp.Needs, Writes)
	}
	return sp
}

func pgbenchFlag(script string) string {
	if script == "select" {
		return "-S"
	}
	return "-N"
}

type pgbench struct{ script, mode string }

func (*pgbench) calibrate(context.Context, *Spec, *Target, time.Duration) error { return nil }

func (b *pgbench) run(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error) {
	seconds := max(1, int(math.Round(d.Seconds())))
	window := pgbenchWindow{processes: t.Processes, seconds: seconds}
	// It may end before it has told of its last second.
	out, err := runPgbench(ctx, t, window.line, "-n", pgbenchFlag(b.script), "-M", b.mode, "-c", strconv.Itoa(sp.Clients),
		"-j", strconv.Itoa(min(sp.Clients, 2)), "-P", "1", "-T", strconv.Itoa(seconds+2))
	if err != nil {
		return outcome{}, err
	}
	all, err := checkPgbench(out)
	if err != nil {
		return outcome{}, err
	}
	o, err := window.outcome()
	o.all = all
	return o, err
}

// A pgbenchWindow is the part of a run that counts: so many seconds from its first line of
// progress, which comes a second after the beginning.
//
// That second is for what is new in each slice, pgbench's sessions and the processes that serve
// them, but for those of a pool: until they have filled their caches they are slower, and
// that is no cost of what lies between.
type pgbenchWindow struct {
	processes map[string]int
	seconds   int // lines of progress that count

	lines       int
	from, to    time.Time
	first, last map[string]float64 // processor time
	operations  float64
	err         error
}

// line is told each line of progress as it comes, and the process that says so.
func (w *pgbenchWindow) line(text string, pid int) {
	m := pgbenchProgress.FindStringSubmatch(text)
	if m == nil || w.err != nil || w.lines > w.seconds {
		return
	}
	w.lines++
	rate, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		w.err = err
		return
	}
	now := time.Now()
	// pgbench is no child that was waited for yet.
	all := map[string]int{pgbenchProcess: pid}
	maps.Copy(all, w.processes)
	cpu, err := cpuOf(all)
	if err != nil {
		w.err = err
		return
	}
	cpu[bench.Load] += cpu[pgbenchProcess]
	delete(cpu, pgbenchProcess)
	if w.from.IsZero() {
		w.from, w.first = now, cpu
	} else {
		// The transactions of the time since the line before.
		w.operations += rate * now.Sub(w.to).Seconds()
	}
	w.to, w.last = now, cpu
}

const pgbenchProcess = "pgbench"

func (w *pgbenchWindow) outcome() (outcome, error) {
	switch {
	case w.err != nil:
		return outcome{}, fmt.Errorf("the progress of pgbench: %w", w.err)
	case w.operations == 0:
		return outcome{}, errors.New("pgbench told of no progress")
	}
	return outcome{operations: w.operations, seconds: w.to.Sub(w.from).Seconds(), cpu: less(w.last, w.first)}, nil
}

// PreparePgbench makes pgbench's tables, over a connection that may.
func PreparePgbench(ctx context.Context, t *Target, scale int) error {
	_, err := runPgbench(ctx, t, nil, "-i", "-q", "-s", strconv.Itoa(scale))
	return err
}

// runPgbench runs pgbench on a target, and tells line what it says beside its result. The
// credential goes through the environment, which other users cannot read.
func runPgbench(ctx context.Context, t *Target, line func(text string, pid int), args ...string) (string, error) {
	bin, err := findPgbench()
	if err != nil {
		return "", err
	}
	c, err := pgConfig(t)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), pgEnvironment(t, c)...)
	var out, said bytes.Buffer
	cmd.Stdout = &out
	lines, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", fmt.Errorf("pgbench: %w", err)
	}
	for in := bufio.NewScanner(lines); in.Scan(); {
		if line != nil {
			line(in.Text(), cmd.Process.Pid)
		}
		fmt.Fprintln(&said, in.Text())
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("pgbench: %w: %s", err, lastLines(said.String()))
	}
	return out.String(), nil
}

func pgEnvironment(t *Target, c *pgconn.Config) []string {
	env := []string{"PGHOST=" + c.Host, "PGPORT=" + strconv.Itoa(int(c.Port)), "PGUSER=" + c.User, "PGDATABASE=" + c.Database,
		"PGPASSWORD=" + c.Password, "PGOPTIONS=", "LC_ALL=C"}
	if u, err := url.Parse(t.URL); err == nil {
		if mode := u.Query().Get("sslmode"); mode != "" {
			env = append(env, "PGSSLMODE="+mode)
		}
	}
	if t.Fenced() {
		options := "-c fence.token=" + t.Token.Reveal()
		if t.Election != "" {
			options += " -c fence.election=" + t.Election
		}
		env = append(env, "PGOPTIONS="+options)
	}
	return env
}

func findPgbench() (string, error) {
	if dir := os.Getenv("FENCEPROXY_POSTGRES_BIN"); dir != "" {
		bin := filepath.Join(dir, "pgbench")
		if _, err := os.Stat(bin); err == nil { //nolint:gosec // the user's own setting
			return bin, nil
		}
	}
	if bin, err := exec.LookPath("pgbench"); err == nil {
		return bin, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	if err == nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return "", fmt.Errorf("pgbench: %w (apt-get install postgresql-contrib; or make deps)", ErrNotInstalled)
}

var (
	pgbenchProgress = regexp.MustCompile(`^progress: [0-9.]+ s, ([0-9.]+) tps`)

	pgbenchDone   = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
	pgbenchFailed = regexp.MustCompile(`(?m)^number of failed transactions: (\d+)`)
)

// checkPgbench makes sure, by what pgbench printed, that every transaction was done, and
// returns how many there were.
func checkPgbench(out string) (float64, error) {
	n, err := number(pgbenchDone, out)
	if err != nil {
		return 0, err
	}
	if failed, err := number(pgbenchFailed, out); err == nil && failed > 0 {
		return 0, fmt.Errorf("%g transactions failed", failed)
	}
	if n == 0 {
		return 0, errors.New("pgbench did no transaction")
	}
	return n, nil
}

func number(re *regexp.Regexp, out string) (float64, error) {
	m := re.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("no line like %v in %q", re, lastLines(out))
	}
	return strconv.ParseFloat(m[1], 64)
}

// lastLines are the end of what a program said.
func lastLines(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 500 {
		s = "…" + s[len(s)-500:]
	}
	return s
}

// --- redis-benchmark ---

// RedisBenchmark is a closed loop of redis-benchmark: test "set" or "get", 64 bytes.
//
// It takes a credential on its command line only, which everybody on the machine can read:
// use it with tokens that are worth nothing, of elections made for a benchmark.
func RedisBenchmark(test string, pipeline, clients int) *Spec {
	sp := &Spec{
		Name:  fmt.Sprintf("redis/benchmark-%s/p%d/%d", test, pipeline, clients),
		Title: fmt.Sprintf("Redis: redis-benchmark %s, pipeline %d, %d %s", strings.ToUpper(test), pipeline, clients, plural(clients, "client")),
		Wire:  Redis, Unit: operations, Tool: "redis-benchmark", Clients: clients,
		work: &toolWork{&redisBenchmark{test: test, pipeline: pipeline}},
	}
	if test == "set" {
		sp.Needs = append(sp.Needs, Writes)
	}
	return sp
}

type redisBenchmark struct {
	test     string
	pipeline int
	// rate is what the first target does, operations a second: a slice is so many
	// operations as that one does in the time of a slice.
	rate float64
}

func (b *redisBenchmark) calibrate(ctx context.Context, sp *Spec, t *Target, d time.Duration) error {
	// Enough to last some tenths of a second.
	for n := 2000 * b.pipeline; ; n *= 4 {
		o, err := b.requests(ctx, sp, t, n)
		if err != nil {
			return fmt.Errorf("target %s: %w", t.Name, err)
		}
		if b.rate = o.operations / o.seconds; o.seconds > min(0.3, d.Seconds()) || n > 1e7 {
			return nil
		}
	}
}

func (b *redisBenchmark) run(ctx context.Context, sp *Spec, t *Target, d time.Duration) (outcome, error) {
	return b.requests(ctx, sp, t, max(1000, int(b.rate*d.Seconds())))
}

func (b *redisBenchmark) requests(ctx context.Context, sp *Spec, t *Target, n int) (outcome, error) {
	bin, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return outcome{}, fmt.Errorf("redis-benchmark: %w (apt-get install redis-tools; or make deps)", ErrNotInstalled)
	}
	o, err := redis.ParseURL(t.URL)
	if err != nil {
		return outcome{}, errors.New("its URL is not one of Redis")
	}
	host, port, ok := strings.Cut(o.Addr, ":")
	if !ok || o.TLSConfig != nil {
		return outcome{}, errors.New("redis-benchmark is run on plain TCP only")
	}
	args := []string{"-h", host, "-p", port, "-c", strconv.Itoa(sp.Clients), "-n", strconv.Itoa(n), "-P", strconv.Itoa(b.pipeline),
		"-t", b.test, "-d", strconv.Itoa(redisValue), "-r", strconv.Itoa(redisKeys), "--csv"}
	if t.Fenced() {
		args = append(args, "--user", o.Username+";election="+t.Election+";token="+t.Token.Reveal(), "-a", "none")
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return outcome{}, fmt.Errorf("redis-benchmark: %w: %s", err, lastLines(said.String()))
	}
	return parseRedisBenchmark(string(out), n)
}

// parseRedisBenchmark reads what redis-benchmark --csv printed of n requests.
func parseRedisBenchmark(out string, n int) (outcome, error) {
	// It may print warnings before, and errors of the server.
	at := strings.Index(out, `"test","rps"`)
	if at < 0 {
		return outcome{}, fmt.Errorf("redis-benchmark printed no table: %q", lastLines(out))
	}
	rows, err := csv.NewReader(strings.NewReader(out[at:])).ReadAll()
	if err != nil || len(rows) != 2 {
		return outcome{}, fmt.Errorf("redis-benchmark's table has %d lines: %w", len(rows), err)
	}
	value := map[string]float64{}
	for i, name := range rows[0] {
		if v, err := strconv.ParseFloat(rows[1][i], 64); err == nil {
			value[name] = v
		}
	}
	if value["rps"] <= 0 {
		return outcome{}, fmt.Errorf("redis-benchmark's table has no rate: %q", rows[1])
	}
	return outcome{
		operations: float64(n), seconds: float64(n) / value["rps"],
		latency: &bench.Latency{
			Count: int64(n), Mean: value["avg_latency_ms"] * 1000, P50: value["p50_latency_ms"] * 1000,
			P99: value["p99_latency_ms"] * 1000, Max: value["max_latency_ms"] * 1000,
		},
	}, nil
}
