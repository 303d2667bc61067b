package rediscluster

import (
	"testing"
	"time"
)

// Addresses that nobody lists any more do not keep their clients for ever.
func TestForget(t *testing.T) {
	top := New(Options{Seeds: []string{"seed:1"}})
	defer top.Close()
	for _, addr := range []string{"seed:1", "there:1", "back:1", "gone:1"} {
		top.Client(addr)
	}
	view := func(addrs ...string) *View {
		var list []said
		for i, a := range addrs {
			list = append(list, said{Node: Node{ID: string(rune('a' + i)), Addr: a, Primary: true}, myself: i == 0})
		}
		return merge([][]said{list})
	}
	start := time.Now()
	top.forget(view("there:1"), start)
	top.forget(view("there:1", "back:1"), start.Add(forgetAfter/2))
	top.forget(view("there:1"), start.Add(forgetAfter+1))
	if len(top.clients) != 3 || top.clients["gone:1"] != nil {
		t.Errorf("left: %v", top.clients)
	}
}
