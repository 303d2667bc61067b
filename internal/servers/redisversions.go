package servers

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A RedisVersion is one major version of a server that speaks Redis's protocol.
type RedisVersion struct {
	// Name is "redis7", "redis8" or "valkey8".
	Name string
	// Program is redis-server or valkey-server.
	Program string
	// Major is its first number.
	Major string

	suite string // of Debian that has it
}

// Those that fenceproxy is tested with.
var (
	Redis7  = RedisVersion{"redis7", redisServer, "7", "bookworm"}
	Redis8  = RedisVersion{"redis8", redisServer, "8", "trixie"}
	Valkey8 = RedisVersion{"valkey8", valkeyServer, "8", "trixie"}
)

// RedisVersions returns the versions of Redis and Valkey that fenceproxy is tested with.
func RedisVersions() []RedisVersion { return []RedisVersion{Redis7, Redis8, Valkey8} }

// redisPackages names what .ci/deps unpacks where the system has no such version. The
// directory that it unpacks them in is named by its hash.
//
//go:embed redisdeb/packages.txt
var redisPackages []byte

// Find returns the directory of the version's program, or ErrNotInstalled; what it
// returns goes into RedisOptions.Bin. It looks in the directory that, for redis8,
// FENCEPROXY_REDIS_8_BIN names; else where .ci/deps puts it, then on PATH.
func (v RedisVersion) Find() (string, error) {
	name := "FENCEPROXY_" + strings.ToUpper(strings.TrimSuffix(v.Program, "-server")) + "_" + v.Major + "_BIN"
	if dir := os.Getenv(name); dir != "" {
		if !v.isIn(dir) {
			return "", fmt.Errorf("%s %s in %s: %w", v.Program, v.Major, dir, ErrNotInstalled)
		}
		return dir, nil
	}
	sum := sha256.Sum256(redisPackages)
	below := filepath.Join("fenceproxy", "redis-"+hex.EncodeToString(sum[:6]), v.suite, "programs")
	// Root's servers run as nobody, who cannot see into root's own cache.
	dirs := []string{filepath.Join("/var/cache", below)}
	if cache, err := os.UserCacheDir(); err == nil && os.Geteuid() != 0 {
		dirs = append(dirs, filepath.Join(cache, below))
	}
	if bin, err := exec.LookPath(v.Program); err == nil {
		dirs = append(dirs, filepath.Dir(bin))
	}
	for _, dir := range dirs {
		if v.isIn(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s %s: %w (run make deps, or set %s)", v.Program, v.Major, ErrNotInstalled, name)
}

// isIn asks the program in the directory what it is.
func (v RedisVersion) isIn(dir string) bool {
	out, err := exec.Command(filepath.Join(dir, v.Program), "--version").Output()
	return err == nil && strings.Contains(string(out), " v="+v.Major+".")
}
