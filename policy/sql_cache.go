package policy

import "sync"

// sqlCache remembers verdicts by the statement's text in two generations: when the
// young one is full it becomes the old one, whose entries are forgotten unless they
// are asked for again. Texts are compared whole, so two never share a verdict.
type sqlCache struct {
	mu         sync.RWMutex
	young, old map[string]*remembered
	bytes      int // of young
	limit      int // of bytes, for each generation
}

type remembered struct {
	text    string // the key, so that moving it takes no copy
	verdict SQLVerdict
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

func (c *sqlCache) get(text []byte) (SQLVerdict, bool) {
	if len(text) > maxCachedText {
		return SQLVerdict{}, false
	}
	c.mu.RLock()
	e := c.young[string(text)]
	fresh := e != nil
	if !fresh {
		e = c.old[string(text)]
	}
	c.mu.RUnlock()
	if e == nil {
		return SQLVerdict{}, false
	}
	if !fresh {
		c.keep(e)
	}
	return e.verdict, true
}

// put remembers a verdict under a copy of text.
func (c *sqlCache) put(text []byte, v SQLVerdict) {
	if len(text) <= maxCachedText {
		c.keep(&remembered{string(text), v})
	}
}

func (c *sqlCache) keep(e *remembered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.young[e.text]; ok {
		return
	}
	n := cost(e.text)
	if c.bytes+n > c.limit {
		if n > c.limit {
			return
		}
		c.old, c.young, c.bytes = c.young, nil, 0
	}
	if c.young == nil {
		c.young = make(map[string]*remembered)
	}
	c.bytes += n
	c.young[e.text] = e
}
