package guard

// Keepers is how many keepers the guard has.
func (g *Guard) Keepers() int { g.mu.Lock(); defer g.mu.Unlock(); return len(g.keepers) }
