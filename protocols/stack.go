package protocols

// OnOwnStack calls f in a goroutine of its own, and waits for it: what settles a credential
// calls deep, and the stack of a pump, which lives as long as its session, stays small.
func OnOwnStack(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
