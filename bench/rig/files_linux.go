package rig

import "golang.org/x/sys/unix"

// MoreFiles lets this process and those that it starts have so many files and connections
// open, where it may.
func MoreFiles(n uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur >= n {
		return
	}
	allowed := l.Max
	l.Cur, l.Max = n, max(allowed, n)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		return
	}
	l.Cur, l.Max = min(n, allowed), allowed
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l) // what is too much fails by itself
}
