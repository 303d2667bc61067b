package rediscluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestSlot(t *testing.T) {
	// From the cluster specification, and as CLUSTER KEYSLOT answers.
	for key, want := range map[string]int{
		"123456789": 0x31c3 % Slots, "": 0, "{user1000}.following": Slot([]byte("user1000")),
		"foo{}{bar}": Slot([]byte("foo{}{bar}")), "foo{{bar}}zap": Slot([]byte("{bar")), "foo{bar}{zap}": Slot([]byte("bar")),
		"a}b{c}": Slot([]byte("c")), "foo": 12182, "bar": 5061,
	} {
		if got := Slot([]byte(key)); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
	for _, slot := range []int{0, 1, 5460, 16383} {
		if got := Slot([]byte("x{" + Tag(slot) + "}y")); got != slot {
			t.Errorf("tag of %d is in %d", slot, got)
		}
	}
}

const nodes = `aaa 10.0.0.1:6379@16379,one.example myself,master - 0 0 7 connected 0-99 200 [93->-bbb] [300-<-ccc]
bbb 10.0.0.2:6379@16379,,tls-port=0,shard-id=x master - 0 0 8 connected 100-199
ccc :0@0 slave,noaddr bbb 0 0 8 disconnected
ddd 10.0.0.4:6379@16379 handshake - 0 0 0 connected
eee ::1:6379@16379,five slave,fail aaa 0 0 7 connected
`

func TestParse(t *testing.T) {
	said, err := parseNodes(nodes, "1.2.3.4")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range said {
		got = append(got, fmt.Sprint(s.ID, " ", s.Addr, " ", s.Hostname, " ", s.Primary, " ", s.PrimaryID, " ", s.fail, s.Slots, s.Leaving))
	}
	want := []string{
		"aaa 10.0.0.1:6379 one.example true  false [{0 99} {200 200}] [93]",
		"bbb 10.0.0.2:6379  true  false [{100 199}] []",
		"ccc   false bbb false [] []",
		"eee [::1]:6379 five false aaa true [] []",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if said, err = parseNodes("aaa :6379@16379 myself,master - 0 0 0 connected\n", "1.2.3.4"); err != nil || said[0].Addr != "1.2.3.4:6379" {
		t.Errorf("own address: %+v, %v", said, err)
	}
	for _, bad := range []string{"", "x", "aaa 10.0.0.1:6379@1 master - 0 0 7 connected 0-99",
		"aaa 1:1@1 myself,master - 0 0 x connected 0-99", "aaa 1:1@1 myself,master - 0 0 1 connected 5-16384", "aaa 1 myself,master - 0 0 1 connected"} {
		if _, err := parseNodes(bad, ""); !errors.Is(err, ErrReply) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(nodes)
	f.Fuzz(func(t *testing.T, s string) {
		if said, err := parseNodes(s, "h"); err == nil {
			v := merge([][]report{said})
			for slot := range Slots {
				v.Owner(slot)
			}
		}
	})
}

type report = said // where said is a variable

// answersOf parses a node's answer given as lines.
func answersOf(t *testing.T, lines ...string) []said {
	t.Helper()
	said, err := parseNodes(strings.Join(lines, "\n"), "h")
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// A former primary that was cut off still claims its slots; the others say that it failed.
func TestFormerPrimaryLosesToTheHigherEpoch(t *testing.T) {
	old := answersOf(t,
		"aaa h:1@1 myself,master - 0 0 1 connected 0-99",
		"bbb h:2@1 slave,fail aaa 0 0 1 connected",
		"ccc h:3@1 master,fail - 0 0 3 connected 100-200",
		"ddd h:4@1 master,fail - 0 0 4 connected 201-300")
	now := []string{"aaa h:1@1 master,fail - 0 0 1 connected", "bbb h:2@1 master - 0 0 5 connected 0-99",
		"ccc h:3@1 master - 0 0 3 connected 100-200", "ddd h:4@1 master - 0 0 4 connected 201-300"}
	said := func(me int) []said {
		lines := slices.Clone(now)
		lines[me] = strings.Replace(lines[me], "master", "myself,master", 1)
		return answersOf(t, lines...)
	}
	for name, answers := range map[string][][]report{"all": {old, said(1), said(2), said(3)}, "it does not answer": {said(3), said(1), said(2), said(2)}} {
		v := merge(answers)
		if n, ok := v.Owner(50); !ok || n.ID != "bbb" {
			t.Errorf("%s: owner %+v", name, n)
		}
		for id, want := range map[string]bool{"aaa": true, "bbb": false, "ccc": false, "ddd": false} {
			if n, ok := v.ByID(id); !ok || n.Failed != want {
				t.Errorf("%s: %+v", name, n)
			}
		}
		if n, _ := v.ByAddr("h:1"); len(n.Slots) > 0 || n.ID != "aaa" {
			t.Errorf("%s: %+v", name, n)
		}
	}
	// One voice, however often it is heard, is not more than half.
	if n, _ := merge([][]report{said(3), said(3), said(3)}).ByID("aaa"); n.Failed {
		t.Errorf("%+v", n)
	}
}

// The name that a certificate is verified for is the one that the node announces, or else
// its address's.
func TestServerName(t *testing.T) {
	o, err := ParseURL("rediss+cluster://seed.example:1")
	if err != nil {
		t.Fatal(err)
	}
	top := New(o)
	defer top.Close()
	top.name([]report{{Node: Node{Addr: "10.0.0.1:6379", Hostname: "one.example"}}})
	for addr, want := range map[string]string{"10.0.0.1:6379": "one.example", "10.0.0.2:6379": "10.0.0.2", "seed.example:1": "seed.example"} {
		if got := top.Client(addr).Options().TLSConfig.ServerName; got != want {
			t.Errorf("%s: %q", addr, got)
		}
	}
}

func TestParseURL(t *testing.T) {
	o, err := ParseURL("valkey+cluster://u:p%40@n1:7000,n2,[::1]:7001/0?read_timeout=3s")
	if err != nil || !slices.Equal(o.Seeds, []string{"n1:7000", "n2:6379", "[::1]:7001"}) || o.Redis.Username != "u" || o.Redis.Password != "p@" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = ParseURL("rediss+cluster://n1"); err != nil || o.Redis.TLSConfig == nil {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"redis://n1", "redis+cluster://", "redis+cluster://:hunter2@n1,", "redis+cluster://u:hunter2@n1:x",
		"redis+cluster://u:hunter2/x@n1", "redis+cluster://u:hunter2 x@h", "redis+cluster://u:hunter2@n1/3", "redis+cluster://u:hunter2@n1/?hunter2=1",
		"redis+cluster://u:%zzhunter2@n1", "http+cluster://u:hunter2@h"} {
		if _, err := ParseURL(bad); !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
