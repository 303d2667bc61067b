package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/servers"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// tool finds a client program next to the server's, or on PATH.
func tool(t *testing.T, name string) string {
	t.Helper()
	if pg, err := servers.FindPostgres(); err == nil {
		if bin := filepath.Join(filepath.Dir(pg), name); fileExists(bin) {
			return bin
		}
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v (make deps installs it)", err)
	}
	return bin
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// run runs a client program and returns all that it printed.
func run(t *testing.T, ctx context.Context, env []string, stdin, bin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(bin), strings.Join(args, " "), err, out)
	}
	return string(out)
}

func hostPort(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

const psqlScript = `
\set VERBOSITY verbose
\pset pager off
create table c (id int primary key, name text, at timestamptz default '2020-01-01');
insert into c (id, name) select g, 'n' || g from generate_series(1, 20) g;
\copy c (id, name) from stdin
21	twenty-one
22	\N
\.
select * from c order by id limit 3;
select * from c where id > 20 order by id;
\copy (select id, name from c order by id limit 2) to stdout
begin;
update c set name = upper(name) where id = 1 returning *;
savepoint a;
insert into c values (1, 'again');
rollback to a;
select name from c where id = 1;
commit;
select 1/0;
insert into nowhere values (1);
prepare p (int) as select name from c where id = $1;
execute p (2);
deallocate all;
declare x cursor with hold for select id from c order by id;
fetch 2 from x;
close x;
select 1 \; select 2 \; update c set name = 'z' where id = 3;
discard all;
update c set name = 'after discard all' where id = 4 returning name;
set default_transaction_read_only = on;
update c set name = 'no' where id = 5;
reset default_transaction_read_only;
update c set name = 'yes' where id = 5 returning name;
listen l;
notify l, 'hello';
do $$ begin raise notice 'a notice'; end $$;
select count(*), sum(id) from c;
\dt c
\gset
select 42 as answer \gset
\echo :answer
\bind 7
select name from c where id = $1 \g
drop table c;
`

// psql, run as the bound leader, prints to the letter what it prints beside the proxy.
func TestPsqlAsLeader(t *testing.T) {
	ctx := testenv.Context(t)
	s := newPgStage(t, ctx)
	b := memory.New()
	c, _ := lead(t, ctx, b, "orders", "psql", time.Hour)
	addr := s.proxy(t, ctx, b, nil)
	psql := func(addr string, env ...string) string {
		host, port := hostPort(t, addr)
		out := run(t, ctx, env, psqlScript, tool(t, "psql"), "-X", "-h", host, "-p", port, "-U", "app", "-d", "postgres")
		// The server process that notifies has another number each time.
		return regexp.MustCompile(`server process with PID \d+`).ReplaceAllString(out, "server process")
	}
	want := psql(s.server.Addr)
	if got := psql(addr, pgOptions(c)); got != want {
		t.Errorf("through the proxy:\n%s\nwithout:\n%s", got, want)
	}
	if !strings.Contains(want, "after discard all") || !strings.Contains(want, "cannot execute UPDATE in a read-only transaction") {
		t.Errorf("the script did not run as meant:\n%s", want)
	}
}

// pgOptions is the environment that makes libpq present the credential.
func pgOptions(c guard.Credential) string {
	return fmt.Sprintf("PGOPTIONS=-c fence.election=%s -c fence.token=%s", c.Election, c.Token.Reveal())
}

// pgbench runs as the bound leader in each of its query modes.
func TestPgbenchAsLeader(t *testing.T) {
	ctx := testenv.Context(t)
	s := newPgStage(t, ctx)
	b := memory.New()
	c, _ := lead(t, ctx, b, "orders", "pgbench", time.Hour)
	host, port := hostPort(t, s.proxy(t, ctx, b, nil))
	pgbench := func(args ...string) string {
		args = append([]string{"-h", host, "-p", port, "-U", "app"}, args...)
		return run(t, ctx, []string{pgOptions(c)}, "", tool(t, "pgbench"), append(args, "postgres")...)
	}
	pgbench("-i", "-q")
	for _, mode := range []string{"simple", "extended", "prepared"} {
		for _, script := range []string{"-S", "-N", "-b tpcb-like"} {
			args := append(strings.Fields(script), "-M", mode, "-c", "4", "-j", "2", "-t", "50", "-n")
			out := pgbench(args...)
			if !strings.Contains(out, "number of transactions actually processed: 200/200") ||
				!strings.Contains(out, "number of failed transactions: 0 ") {
				t.Errorf("%s, %s:\n%s", mode, script, out)
			}
		}
	}
	var rows int
	if err := s.direct.QueryRow(ctx, "select count(*) from pgbench_history").Scan(&rows); err != nil || rows != 3*400 {
		t.Errorf("%d rows of history, want %d (%v)", rows, 3*400, err)
	}
}

const redisScript = `SET a 1
INCR a
GET a
HSET h f v g w
HGETALL h
LPUSH l x y z
LRANGE l 0 -1
SADD s m
ZADD z 1.5 one 2 two
ZRANGE z 0 -1 WITHSCORES
MULTI
INCR a
LPOP l
EXEC
MULTI
INCR a
DISCARD
WATCH a
MULTI
SET a 5
EXEC
EVAL "return redis.call('GET', KEYS[1])" 1 a
INCR h
NOSUCH thing
SET
XADD x 1-1 k v
XRANGE x - +
CLIENT SETNAME mine
CLIENT GETNAME
OBJECT ENCODING a
SELECT 3
SET in three
DBSIZE
SELECT 0
BLPOP l 1
BLPOP none 0.01
PUBLISH c m
GETDEL a
EXPIRE h 100
TYPE z
SORT l
COPY h h2
DEL h h2 l s z x
DBSIZE
`

// redis-cli, run as the bound leader, prints to the letter what it prints beside the
// proxy, in both protocols.
func TestRedisCLIAsLeader(t *testing.T) {
	ctx := testenv.Context(t)
	for _, protocol := range []string{"-2", "-3"} {
		direct := testenv.Redis(t).Addr
		behind := testenv.Redis(t).Addr
		b := memory.New()
		c, _ := lead(t, ctx, b, "orders", "cli", time.Hour)
		addr := redisProxy(t, ctx, behind, b, nil)
		cli := func(addr, script string) string {
			host, port := hostPort(t, addr)
			return run(t, ctx, nil, script, tool(t, "redis-cli"), protocol, "-h", host, "-p", port)
		}
		// The fence is one key more in database 0.
		const sizes = "DBSIZE\n"
		script := strings.ReplaceAll(redisScript, sizes, "")
		want := cli(direct, script)
		got := cli(addr, fmt.Sprintf("FENCE BIND %s %s\n%s", c.Election, c.Token.Reveal(), script))
		bound, got, _ := strings.Cut(got, "\n")
		if bound != "OK" || got != want {
			t.Errorf("%s: bind: %s; through the proxy:\n%s\nwithout:\n%s", protocol, bound, got, want)
		}
	}
}

// redis-benchmark runs as the bound leader, and its pipe mode loads what it is given.
func TestRedisBenchmarkAsLeader(t *testing.T) {
	ctx := testenv.Context(t)
	server := testenv.Redis(t).Addr
	b := memory.New()
	c, _ := lead(t, ctx, b, "orders", "benchmark", time.Hour)
	addr := redisProxy(t, ctx, server, b, nil)
	host, port := hostPort(t, addr)
	// The proxy takes the credential in the user name; the server's default user needs
	// no password.
	user := fmt.Sprintf("default;election=%s;token=%s", c.Election, c.Token.Reveal())
	tests := "ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange,mset"
	for _, pipeline := range []string{"1", "16"} {
		out := run(t, ctx, nil, "", tool(t, "redis-benchmark"), "-h", host, "-p", port, "--user", user, "-a", "none",
			"-t", tests, "-n", "2000", "-c", "20", "-P", pipeline, "--csv")
		for _, name := range []string{"SET", "GET", "INCR", "LPUSH", "ZADD", "MSET (10 keys)"} {
			if !strings.Contains(out, `"`+name+`"`) {
				t.Errorf("pipeline %s: no result of %s:\n%s", pipeline, name, out)
			}
		}
		if strings.Contains(out, "FENCED") || strings.Contains(strings.ToLower(out), "error") {
			t.Errorf("pipeline %s:\n%s", pipeline, out)
		}
	}
	var load strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&load, "*3\r\n$3\r\nSET\r\n$8\r\nk%07d\r\n$1\r\nv\r\n", i)
	}
	out := run(t, ctx, nil, load.String(), tool(t, "redis-cli"), "-h", host, "-p", port, "--user", user, "-a", "none", "--no-auth-warning", "--pipe")
	if !strings.Contains(out, "errors: 0, replies: 10000") {
		t.Errorf("redis-cli --pipe:\n%s", out)
	}
}
