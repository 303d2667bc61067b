// Package loopstest gives the tests of the wires their loops.
package loopstest

import (
	"errors"
	"os"
	"testing"

	"github.com/fenceproxy/fenceproxy/protocols/loops"
)

// Variable names the environment variable that, set to off, makes tests run without loops: each
// session has goroutines then, as on systems that have no loops.
const Variable = "FENCEPROXY_LOOPS"

// Start starts two loops, until the test has ended and so have the servers that it started
// afterwards. It returns nil where tests run without.
func Start(t testing.TB) *loops.Loops {
	t.Helper()
	if os.Getenv(Variable) == "off" {
		return nil
	}
	l, err := loops.Start(2)
	if errors.Is(err, loops.ErrUnsupported) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}
