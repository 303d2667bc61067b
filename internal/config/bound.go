package config

// Exclusive says who may be bound to one election at a time.
type Exclusive string

// The kinds of Exclusive. Empty is everybody who presents the live token.
const (
	ExclusiveSession Exclusive = "session"
	ExclusiveClient  Exclusive = "client"
)

// bound reads who is served and bound by a listener.
func (r *reader) bound(o *object, l *Listener) {
	if f := o.take("bind"); f != nil {
		l.BindRequired = f.oneOf("optional", "required") == "required"
	}
	if f := o.take("exclusive"); f != nil {
		switch s := f.oneOf("false", "true", string(ExclusiveSession), string(ExclusiveClient)); s {
		case "false":
		case "true":
			l.Exclusive = ExclusiveSession
		default:
			l.Exclusive = Exclusive(s)
		}
		if l.Exclusive == ExclusiveSession && l.Group == Cluster {
			f.mistake("a client of a cluster has a session on every node: write client")
		}
	}
}
