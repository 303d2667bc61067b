package policy

import "sync"

// sqlCache remembers verdicts by the statement's text in two generations: when the
// young one is full it becomes the old one, whose entries are forgotten unless they
// are asked for again.
type sqlCache struct {
	mu         sync.RWMutex
	young, old map[string]SQLVerdict
	bytes      int // of the keys of young
	limit      int // of bytes
}

// Texts longer than this are not remembered.
const maxCachedText = 8 << 10

// entryCost is what an entry takes beside its text, roughly.
const entryCost = 160

func (c *sqlCache) get(text []byte) (SQLVerdict, bool) {
	if len(text) > maxCachedText {
		return SQLVerdict{}, false
	}
	c.mu.RLock()
	v, ok := c.young[string(text)]
	inOld := false
	if !ok {
		v, inOld = c.old[string(text)]
	}
	c.mu.RUnlock()
	if inOld {
		c.put(string(text), v)
	}
	return v, ok || inOld
}

func (c *sqlCache) put(text string, v SQLVerdict) {
	if len(text) > maxCachedText {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.young == nil {
		c.young = make(map[string]SQLVerdict)
	}
	if _, ok := c.young[text]; ok {
		return
	}
	c.bytes += len(text) + entryCost
	if c.bytes > c.limit {
		c.old, c.young = c.young, make(map[string]SQLVerdict)
		c.bytes = len(text) + entryCost
	}
	c.young[text] = v
}
