package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// StartRedisCluster starts a cluster of so many primaries, of the program that the
// options name, and waits until every node knows it to be up.
func StartRedisCluster(ctx context.Context, o RedisOptions, primaries int) (nodes []*Process, err error) {
	defer func() {
		if err != nil {
			StopAll(nodes)
			nodes = nil
		}
	}()
	var clients []*redis.Client
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	args := o.Args
	for i := range primaries {
		bus, err := FreePort() // by default the port + 10000, which may be above 65535
		if err != nil {
			return nodes, err
		}
		o.Args = append(clusterArgs(bus), args...)
		p, err := StartRedis(ctx, o)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, p)
		c := redis.NewClient(&redis.Options{Addr: p.Addr})
		clients = append(clients, c)
		const slots = 16384
		if err := c.ClusterAddSlotsRange(ctx, i*slots/primaries, (i+1)*slots/primaries-1).Err(); err != nil {
			return nodes, fmt.Errorf("giving slots to %s: %w", p.Addr, err)
		}
		if err := clients[0].Do(ctx, "cluster", "meet", p.Host(), p.Port(), bus).Err(); err != nil {
			return nodes, fmt.Errorf("joining %s: %w", p.Addr, err)
		}
	}
	err = poll(ctx, func() error {
		for i, c := range clients {
			info, err := c.ClusterInfo(ctx).Result()
			switch {
			case err != nil:
				return err
			case !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", primaries)):
				return fmt.Errorf("%s is not up: %s", nodes[i].Addr, info)
			}
		}
		return nil
	})
	return nodes, err
}

// clusterArgs are the arguments of a node of a cluster.
func clusterArgs(bus int) []string {
	return []string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "2000",
		"--repl-diskless-sync-delay", "0"}
}

// SentinelMaster is the name under which a RedisSentinel's primary is watched.
const SentinelMaster = "main"

// A RedisSentinel is a primary and a replica that three sentinels watch.
type RedisSentinel struct {
	Primary, Replica *Process
	Sentinels        []*Process
}

// StartRedisSentinel starts a primary, a replica and three sentinels of the program
// that the options name, and waits until they know of each other.
func StartRedisSentinel(ctx context.Context, o RedisOptions) (_ *RedisSentinel, err error) {
	s := &RedisSentinel{}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if s.Primary, err = StartRedis(ctx, o); err != nil {
		return nil, err
	}
	o.Args = append([]string{"--replicaof", s.Primary.Host(), strconv.Itoa(s.Primary.Port()), "--repl-ping-replica-period", "1"}, o.Args...)
	if s.Replica, err = StartRedis(ctx, o); err != nil {
		return nil, err
	}
	for range 3 {
		p, err := startSentinel(ctx, o, s.Primary)
		if err != nil {
			return nil, err
		}
		s.Sentinels = append(s.Sentinels, p)
	}
	err = poll(ctx, func() error {
		for _, p := range s.Sentinels {
			c := redis.NewSentinelClient(&redis.Options{Addr: p.Addr})
			m, err := c.Master(ctx, SentinelMaster).Result()
			_ = c.Close()
			switch {
			case err != nil:
				return err
			case m["flags"] != "master" || m["num-slaves"] != "1" || m["num-other-sentinels"] != "2":
				return fmt.Errorf("sentinel %s: %v", p.Addr, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// startSentinel starts one sentinel.
func startSentinel(ctx context.Context, o RedisOptions, primary *Process) (*Process, error) {
	program := o.Program
	if program == "" {
		program = "redis-server"
	}
	bin, err := lookup(o.Bin, program)
	if err != nil {
		return nil, err
	}
	p := &Process{Name: program + " --sentinel", log: new(tail), stop: syscall.SIGTERM}
	if p.Dir, err = NewDir("sentinel"); err != nil {
		return nil, err
	}
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	p.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	conf := filepath.Join(p.Dir, "sentinel.conf") // which it rewrites
	text := fmt.Sprintf("bind 127.0.0.1\nport %d\ndir %s\nsentinel monitor %[3]s %s %d 2\n"+
		"sentinel down-after-milliseconds %[3]s 1000\nsentinel failover-timeout %[3]s 5000\n",
		port, p.Dir, SentinelMaster, primary.Host(), primary.Port())
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(conf, nobody, nobody); err != nil {
			return nil, err
		}
	}
	err = p.start(ctx, bin, []string{conf, "--sentinel"}, func(ctx context.Context) error { return redisAnswers(ctx, p.Addr) })
	if err != nil {
		_ = os.RemoveAll(p.Dir)
		return nil, err
	}
	return p, nil
}

// Addrs are the sentinels' host:port, with commas between.
func (s *RedisSentinel) Addrs() string {
	addrs := make([]string, len(s.Sentinels))
	for i, p := range s.Sentinels {
		addrs[i] = p.Addr
	}
	return strings.Join(addrs, ",")
}

// All are all the processes.
func (s *RedisSentinel) All() []*Process {
	var all []*Process
	for _, p := range append([]*Process{s.Primary, s.Replica}, s.Sentinels...) {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// Stop ends all the processes and removes their directories.
func (s *RedisSentinel) Stop() { StopAll(s.All()) }

// StopAll stops processes.
func StopAll(all []*Process) {
	for _, p := range all {
		p.Stop()
	}
}

// poll calls f until it returns no error, for a minute at most.
func poll(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
