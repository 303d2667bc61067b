package servers

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

// PostgresMajors returns the major versions of Postgres that fenceproxy is tested with.
func PostgresMajors() []int { return []int{14, 15, 16, 17, 18} }

// postgresLock names the packages, to the byte, that .ci/deps installs where the system
// has no such version. The directory that it installs them in is named by its hash.
//
//go:embed postgresnpm/package-lock.json
var postgresLock []byte

// FindPostgresMajor returns the directory of the programs of a major version of Postgres,
// or ErrNotInstalled. It looks in the directory that FENCEPROXY_POSTGRES_<major>_BIN
// names; else where Debian puts them, then where .ci/deps does.
func FindPostgresMajor(major int) (string, error) {
	m := strconv.Itoa(major)
	if dir := os.Getenv("FENCEPROXY_POSTGRES_" + m + "_BIN"); dir != "" {
		_, err := lookup(dir, "postgres")
		return dir, err
	}
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	sum := sha256.Sum256(postgresLock)
	below := filepath.Join("fenceproxy", "postgres-"+hex.EncodeToString(sum[:6]), "node_modules", "postgres-"+m+"-"+arch, "native", "bin")
	dirs := []string{
		"/usr/lib/postgresql/" + m + "/bin",
		// Root's servers run as nobody, who cannot see into root's own cache.
		filepath.Join("/var/cache", below),
	}
	if cache, err := os.UserCacheDir(); err == nil && os.Geteuid() != 0 {
		dirs = append(dirs, filepath.Join(cache, below))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("PostgreSQL %d: %w (run make deps, or set FENCEPROXY_POSTGRES_%d_BIN)", major, ErrNotInstalled, major)
}
