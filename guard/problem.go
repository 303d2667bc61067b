package guard

// A Problem is something that a fence's Check found, for a person to mend.
type Problem struct {
	// Kind tells problems apart for code that has better advice than Fix.
	Kind ProblemKind
	// Fatal means that fencing would refuse to work; otherwise it is a warning.
	Fatal bool
	// What is wrong, in one sentence.
	What string
	// Fix says what to do about it.
	Fix string
}

// ProblemKind is what a Problem is about.
type ProblemKind uint8

// The kinds.
const (
	// OtherProblem: none of those below.
	OtherProblem ProblemKind = iota
	// NoConnection: the control connection does not work.
	NoConnection
	// NotInstalled: the fence's schema, or the control role's rights on it, are missing.
	NotInstalled
	// LacksRights: the control user may not do what fencing needs.
	LacksRights
	// NeedlessRights: the control role may do more than it has to.
	NeedlessRights
)

// String is the problem and its remedy in one line.
func (p Problem) String() string {
	s := p.What
	if p.Fix != "" {
		s += " (" + p.Fix + ")"
	}
	return s
}
