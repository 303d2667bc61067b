package guard

// A Problem is something that a fence's Check found, for a person to mend.
type Problem struct {
	// Fatal means that fencing would refuse to work; otherwise it is a warning.
	Fatal bool
	// What is wrong, in one sentence.
	What string
	// Fix says what to do about it.
	Fix string
}

// String is the problem and its remedy in one line.
func (p Problem) String() string {
	s := p.What
	if p.Fix != "" {
		s += " (" + p.Fix + ")"
	}
	return s
}
