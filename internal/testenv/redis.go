package testenv

import (
	"context"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/servers"
)

// EachRedis runs f as a subtest of each version of Redis and Valkey that fenceproxy is
// tested with, one after the other, on that version's shared server.
func EachRedis(t *testing.T, f func(t *testing.T, v servers.RedisVersion, p *servers.Process)) {
	t.Helper()
	for _, v := range servers.RedisVersions() {
		t.Run(v.Name, func(t *testing.T) { f(t, v, SharedRedisVersion(t, v)) })
	}
}

// RedisBin returns the directory of a version's program, for servers.RedisOptions.Bin;
// lacking it fails the test.
func RedisBin(t testing.TB, v servers.RedisVersion) string {
	t.Helper()
	bin, err := v.Find()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// RedisVersion starts a server of a version, the test's own; args are appended to its
// command line.
func RedisVersion(t testing.TB, v servers.RedisVersion, args ...string) *servers.Process {
	t.Helper()
	p, err := servers.StartRedis(Context(t), servers.RedisOptions{Bin: RedisBin(t, v), Program: v.Program, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(t, p) })
	return p
}

var sharedRedis struct {
	sync.Mutex
	of map[string]*servers.Process
}

// SharedRedisVersion returns the package's one server of a version, started at the first
// call. Tests keep apart by key names. The package's TestMain must call Main.
func SharedRedisVersion(t testing.TB, v servers.RedisVersion) *servers.Process {
	t.Helper()
	bin := RedisBin(t, v)
	sharedRedis.Lock()
	defer sharedRedis.Unlock()
	if p := sharedRedis.of[v.Name]; p != nil {
		return p
	}
	p, err := servers.StartRedis(context.Background(), servers.RedisOptions{Bin: bin, Program: v.Program})
	if err != nil {
		t.Fatal(err)
	}
	if sharedRedis.of == nil {
		sharedRedis.of = make(map[string]*servers.Process)
	}
	sharedRedis.of[v.Name] = p
	shared.Lock()
	shared.all = append(shared.all, p)
	shared.Unlock()
	return p
}
