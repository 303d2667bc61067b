package policy

import "sync"

// sqlCache remembers verdicts, or the like, by the statement's text in two generations: when the
// young one is full it becomes the old one, whose entries are forgotten unless they
// are asked for again. Texts are compared whole, so two never share a verdict.
type sqlCache[V any] struct {
	mu         sync.RWMutex
	young, old map[string]*remembered[V]
	bytes      int         // of young
	limit      int         // of bytes, for each generation
	size       func(V) int // what a verdict takes beside itself; nil means nothing
}

type remembered[V any] struct {
	text    string // the key, so that moving it takes no copy
	verdict V
}

const (
	// Texts longer than this are not remembered.
	maxCachedText = 8 << 10
	// entryCost is what an entry takes beside its text: itself, its place in the map,
	// which may be half empty, and what the allocator rounds up.
	entryCost = 224
)

// cost is what an entry takes in memory, at most.
func cost(text string) int { return len(text) + len(text)/4 + entryCost }

func (c *sqlCache[V]) get(text []byte) (v V, ok bool) {
	if len(text) > maxCachedText {
		return v, false
	}
	c.mu.RLock()
	e := c.young[string(text)]
	fresh := e != nil
	if !fresh {
		e = c.old[string(text)]
	}
	c.mu.RUnlock()
	if e == nil {
		return v, false
	}
	if !fresh {
		c.keep(e)
	}
	return e.verdict, true
}

// put remembers a verdict under a copy of text.
func (c *sqlCache[V]) put(text []byte, v V) {
	if len(text) <= maxCachedText {
		c.keep(&remembered[V]{string(text), v})
	}
}

func (c *sqlCache[V]) keep(e *remembered[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.young[e.text]; ok {
		return
	}
	n := cost(e.text)
	if c.size != nil {
		n += c.size(e.verdict)
	}
	if c.bytes+n > c.limit {
		if n > c.limit {
			return
		}
		c.old, c.young, c.bytes = c.young, nil, 0
	}
	if c.young == nil {
		c.young = make(map[string]*remembered[V])
	}
	c.bytes += n
	c.young[e.text] = e
}
