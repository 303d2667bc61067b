package pg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/protocols"
)

// defaultPort is the one of a socket whose directory alone is named.
const defaultPort = "5432"

// SocketPath is the path of the Unix socket that an address names, as the server and
// libpq name them: /dir:5433 is /dir/.s.PGSQL.5433, and /dir, where that is a directory,
// /dir/.s.PGSQL.5432; any other /path, or unix:/path, is the socket itself. It reports
// false for host:port.
func SocketPath(addr string) (path string, ok bool) {
	path, ok = protocols.SocketPath(addr)
	if !ok {
		return "", false
	}
	if at := strings.LastIndexByte(path, ':'); at > 0 {
		if n, err := strconv.ParseUint(path[at+1:], 10, 16); err == nil && n > 0 {
			return socketIn(path[:at], path[at+1:]), true
		}
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return socketIn(path, defaultPort), true
	}
	return path, true
}

func socketIn(dir, port string) string { return filepath.Join(dir, ".s.PGSQL."+port) }
