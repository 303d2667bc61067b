// Package peer says what the kernel knows of the process at the other end of a Unix
// socket, so that a fence can tell the server itself from somebody who relays to it.
//
// It promises that a process which it describes is one of the pid namespace that this
// process is in and of no inner one, so that its number means the same to both. It
// knows nothing outside Linux, and says so.
package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A Process is what the system says of one.
type Process struct {
	Parent int
	// Started is within a hundredth of a second, by the clock as it is now.
	Started time.Time
}

// StartSlack is how far the two times of a server's start may lie apart: the system's,
// and the server's own, which it takes a little later and by the clock as it was then.
const StartSlack = 10 * time.Second

// ticks is the unit of start times in /proc, on every Linux (USER_HZ).
const ticks = 100

var (
	errLayout    = errors.New("unexpected contents")
	errNamespace = errors.New("it is in another pid namespace")
)

// Look asks the system about a process.
func Look(pid int) (Process, error) {
	read := func(name string) ([]byte, error) {
		b, err := os.ReadFile("/proc/" + name)
		if err != nil {
			return nil, fmt.Errorf("/proc cannot be read: %w", err)
		}
		return b, nil
	}
	dir := strconv.Itoa(pid) + "/"
	// The status has one number of the process for each pid namespace that it is in.
	status, err := read(dir + "status")
	if err != nil {
		return Process{}, err
	}
	_, own, ok := bytes.Cut(status, []byte("\nNSpid:"))
	own, _, _ = bytes.Cut(own, []byte("\n"))
	if ids := strings.Fields(string(own)); !ok || len(ids) != 1 {
		return Process{}, errNamespace
	}
	stat, err := read(dir + "stat")
	if err != nil {
		return Process{}, err
	}
	// The name in brackets may hold anything; the fields behind it are numbers.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return Process{}, errLayout
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, errLayout
	}
	started, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return Process{}, errLayout
	}
	up, err := read("uptime")
	if err != nil {
		return Process{}, err
	}
	now := time.Now()
	first, _, _ := strings.Cut(string(up), " ")
	uptime, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return Process{}, errLayout
	}
	age := time.Duration(uptime*float64(time.Second)) - time.Duration(started)*(time.Second/ticks)
	return Process{parent, now.Add(-age)}, nil
}
