package election

// String returns acquired or busy.
func (s AcquireStatus) String() string { return name(s, "acquired", "busy") }

// String returns held or hold-off.
func (r BusyReason) String() string { return name(r, "held", "hold-off") }

// String returns renewed or lost.
func (s RenewStatus) String() string { return name(s, "renewed", "lost") }

// String returns released or not-owner.
func (s ResignStatus) String() string { return name(s, "released", "not-owner") }

// String returns vacant or held.
func (s HeldStatus) String() string { return name(s, "vacant", "held") }

// String returns current, stale or vacant.
func (s Standing) String() string { return name(s, "current", "stale", "vacant") }

// name returns the name of an outcome; outcomes count from one.
func name[T ~uint8](v T, names ...string) string {
	if v == 0 || int(v) > len(names) {
		return "none"
	}
	return names[v-1]
}
