package gates

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// now is a time of the clock that all processes share.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// A belief is the time for which a consumer took a partition for its own.
type belief struct {
	who       string
	partition int
	number    int64
	gate      int
	from, to  time.Duration
	ended     bool          // the consumer said so itself; else it was killed, and to is the last it was told
	told      bool          // it heard of the loss
	resigned  time.Duration // when its token was resigned while it worked on; zero: it was not
}

// read reads what consumers wrote.
func read(t *testing.T, dir string) (all []belief, refused map[string]int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	refused = make(map[string]int)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		byKey := make(map[string]*belief)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			kind, rest, _ := strings.Cut(lines.Text(), " ")
			var key string
			var b belief
			var at time.Duration
			switch kind {
			case "B":
				_, err = fmt.Sscan(rest, &key, &b.partition, &b.number, &b.gate, &b.from, &b.to)
				b.who = filepath.Base(name) + " " + key
				byKey[key] = &b
			case "K":
				_, err = fmt.Sscan(rest, &key, &at)
				byKey[key].to = max(byKey[key].to, at)
			case "R":
				_, err = fmt.Sscan(rest, &key, &at)
				byKey[key].resigned = at
			case "E":
				var how string
				_, err = fmt.Sscan(rest, &key, &at, &how)
				x := byKey[key]
				x.to, x.ended, x.told = min(x.to, at), true, how == "told"
			case "X":
				refused[rest]++
			}
			if err != nil {
				break // the end of a file whose writer was killed
			}
		}
		_ = f.Close()
		for _, b := range byKey {
			all = append(all, *b)
		}
	}
	return all, refused
}

// overlaps are the pairs of beliefs in one partition at one time.
func overlaps(all []belief) (found []string) {
	slices.SortFunc(all, func(a, b belief) int { return cmp.Compare(a.from, b.from) })
	last := make(map[int]belief)
	for _, b := range all {
		if b.to <= b.from {
			continue
		}
		a, ok := last[b.partition]
		if ok && a.to > b.from {
			found = append(found, fmt.Sprintf("partition %d: %s (number %d, gate %d, ended %v) until %v, %s (number %d, gate %d) from %v",
				b.partition, a.who, a.number, a.gate, a.ended, a.to, b.who, b.number, b.gate, b.from))
		}
		if !ok || b.to > a.to {
			last[b.partition] = b
		}
	}
	return found
}
