package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

const (
	// lowestPort is the lowest that FreePort takes by choice.
	lowestPort = 10240
	// ephemeral is where the system's own choice begins, where it does not say.
	ephemeral = 32768
	// portTries is how many ports FreePort tries before it leaves the choice to the system.
	portTries = 100
)

// FreePort returns a loopback port that was free a moment ago. It is below those that the
// system gives to outgoing connections: one of these could take it before a server does.
func FreePort() (int, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return 0, err
	}
	return ports[0], nil
}

// FreePorts returns n of them, no two the same.
func FreePorts(n int) ([]int, error) {
	below := ephemeral
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(b), &below)
	}
	ports := make([]int, n)
	for i := range ports {
		l, err := listen(below)
		if err != nil {
			return nil, err
		}
		defer l.Close() // when all are chosen
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// listen listens at some port, below the one given if it can.
func listen(below int) (net.Listener, error) {
	if below > lowestPort {
		for range portTries {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", lowestPort+rand.IntN(below-lowestPort)))
			if err == nil {
				return l, nil
			}
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}
