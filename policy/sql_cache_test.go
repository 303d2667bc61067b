package policy

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func (c *sqlCache[V]) entries() int { return len(c.young) + len(c.old) }

func TestSQLCacheForgets(t *testing.T) {
	s := NewSQL(64 << 10)
	for i := range 5000 {
		s.Inspect(fmt.Appendf(nil, "SELECT %d", i))
	}
	if n := s.cache.entries(); n == 0 || n > 64<<10/entryCost {
		t.Errorf("%d entries", n)
	}
	hot := []byte("SELECT 4999")
	if n := testing.AllocsPerRun(100, func() { s.Inspect(hot) }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
	// What is asked for stays while others come and go; none is remembered whole twice.
	s.Inspect([]byte("SELECT 'hot'"))
	for i := range 5000 {
		s.Inspect(fmt.Appendf(nil, "SELECT %d, 2", i))
		if i%50 == 0 {
			if _, ok := s.cache.get([]byte("SELECT 'hot'")); !ok {
				t.Fatalf("forgotten after %d others", i)
			}
		}
	}
	if _, ok := s.cache.get([]byte("SELECT 1")); ok {
		t.Error("still remembered")
	}
}

// The bound is one of memory, whatever the texts' lengths.
func TestSQLCacheIsBounded(t *testing.T) {
	for _, length := range []int{16, 100, 1000, maxCachedText - 20} {
		const most = 4 << 20
		c := &sqlCache[SQLVerdict]{limit: most / 2}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		pad := strings.Repeat("x", length)
		for i := range 12 * most / (length + entryCost) {
			c.put(fmt.Appendf(nil, "%d%s", i, pad), SQLVerdict{Reason: SQLFunction, What: shortName(pad)})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("texts of %d bytes: %d entries take %d kB", length, c.entries(), took>>10)
		if took > most {
			t.Errorf("texts of %d bytes: %d entries take %d bytes, more than %d", length, c.entries(), took, most)
		}
		runtime.KeepAlive(c)
	}
}

func TestSQLCacheKeepsOnlyWhatItMay(t *testing.T) {
	s := NewSQL(0)
	long := append([]byte("SELECT '"), bytes.Repeat([]byte("x"), maxCachedText)...)
	for _, text := range [][]byte{append(long, '\''), []byte("SELECT 'Fence'"), []byte(`SET U&"\0066ence".token = 'x'`), []byte("SELEC 1")} {
		s.Inspect(text)
		if _, ok := s.cache.get(text); ok {
			t.Errorf("%.40q is kept", text)
		}
	}
	// The caller's memory is not kept, nor a part of it in the verdict.
	text := []byte("SELECT pg_notify('a', 'secret')")
	v := s.Inspect(text)
	copy(text, "SELECT 1; -- ")
	if v.What != "pg_notify" || s.Inspect([]byte("SELECT pg_notify('a', 'secret')")).What != "pg_notify" {
		t.Errorf("%+v", v)
	}
	if v := s.Inspect(text); v.Reason != SQLReads {
		t.Errorf("%+v", v)
	}
	if v := NewSQL(1); v.Inspect([]byte("SELECT 1")).Reason != SQLReads || v.cache.entries() != 0 {
		t.Error("kept beyond the bound")
	}
}

// Sessions share a cache: each gets the verdict of its own text.
func TestSQLCacheIsShared(t *testing.T) {
	s := NewSQL(32 << 10)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				n := (i*7 + g) % 300
				text, want := fmt.Appendf(nil, "SELECT %d", n), SQLReads
				if n%2 == 1 {
					text, want = fmt.Appendf(nil, "SELECT %d, nextval('s')", n), SQLFunction
				}
				if v := s.Inspect(text); v.Reason != want {
					t.Errorf("%s: %+v", text, v)
				}
			}
		})
	}
	wg.Wait()
}

const benchmarkText = "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer WHERE o.state = $1 AND o.created > now() - interval '1 day' ORDER BY o.id LIMIT 50"

func BenchmarkSQLHit(b *testing.B) {
	s := NewSQL(0)
	text := []byte(benchmarkText)
	s.Inspect(text)
	b.ReportAllocs()
	for b.Loop() {
		s.Inspect(text)
	}
}

func BenchmarkSQLMiss(b *testing.B) {
	s := NewSQL(1)
	text := []byte(benchmarkText)
	b.ReportAllocs()
	for b.Loop() {
		s.Inspect(text)
	}
}
