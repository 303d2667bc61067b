package testenv

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Serve runs a server on l until the test ends or stop is called, which waits for its end.
func Serve(t testing.TB, l net.Listener, run func(context.Context, net.Listener) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := run(ctx, l); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Listen listens on a free port of the loopback address.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
