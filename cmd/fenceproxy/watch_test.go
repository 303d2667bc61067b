package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/electiontest"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// What watch says of a leadership's life, with a backend that goes away in between.
func TestWatch(t *testing.T) {
	link := electiontest.NewLink(t, testenv.SharedRedis(t).Addr)
	direct := "redis://" + testenv.SharedRedis(t).Addr
	id := testenv.Name(t, "watch")
	ctx, cancel := context.WithCancel(testenv.Context(t))
	defer cancel()
	r, w := io.Pipe()
	code := make(chan int, 1)
	var errOut bytes.Buffer
	go func() {
		code <- run(ctx, []string{"election", "watch", id, "--json", "--every", "20ms", "--backend", "redis://" + link.Addr()}, nil, w, &errOut)
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	// next is the next line with one of the changes given; a renewal may come at any time.
	next := func(change, outcome string) sight {
		t.Helper()
		for lines.Scan() {
			var s sight
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Fatalf("%v in %q", err, lines.Text())
			}
			if at, err := time.Parse(time.RFC3339Nano, s.Time); err != nil || time.Since(at) > time.Minute || s.Election != id {
				t.Fatalf("time or election of %q: %v", lines.Text(), err)
			}
			if s.Change == change && s.Outcome == outcome {
				return s
			}
			if s.Change != "renewed" && s.Change != "error" {
				t.Fatalf("got %q, want %s, %s", lines.Text(), change, outcome)
			}
		}
		t.Fatalf("ended before %s, %s; said %q", change, outcome, errOut.String())
		return sight{}
	}
	b := openTest(t, direct)
	next("first", "vacant")
	g, err := b.Acquire(ctx, id, election.AcquireOptions{Owner: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if s := next("term", "held"); s.Owner != "a" || s.Number != g.Number || s.Remaining <= 0 || s.Remaining > 60000 || s.Token != "" {
		t.Errorf("%+v", s)
	}
	link.Cut()
	if s := next("error", "unknown"); s.Error == "" {
		t.Errorf("%+v", s)
	}
	link.Pass()
	next("again", "held")
	if _, err := b.Acquire(ctx, id, election.AcquireOptions{Token: g.Token, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if s := next("renewed", "held"); s.Remaining < 60000 {
		t.Errorf("%+v", s)
	}
	if _, err := b.Resign(ctx, id, g.Token, election.ResignOptions{HoldOff: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if s := next("hold-off", "vacant"); s.HoldOff <= 0 {
		t.Errorf("%+v", s)
	}
	next("vacant", "vacant")
	h, err := b.Acquire(ctx, id, election.AcquireOptions{Owner: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if s := next("term", "held"); s.Owner != "b" || s.Number != h.Number {
		t.Errorf("%+v", s)
	}
	cancel()
	for lines.Scan() {
		if strings.Contains(lines.Text(), h.Token.Reveal()) {
			t.Error("a token")
		}
	}
	if c := <-code; c != exitOK || errOut.Len() > 0 {
		t.Errorf("code %d, said %q", c, errOut.String())
	}
}

// The same in words: a line for each change, and a live line in a terminal.
func TestWatchInWords(t *testing.T) {
	held := func(owner string, n int64, d time.Duration) election.StatusResult {
		return election.StatusResult{Status: election.Held, Owner: owner, Number: n, Remaining: d}
	}
	vacant := election.StatusResult{Status: election.Vacant, Number: 7}
	down := errors.New("down")
	looks := []struct {
		st  election.StatusResult
		err error
	}{
		{vacant, nil}, {vacant, nil}, {held("a", 8, 10*time.Second), nil}, {held("a", 8, 9*time.Second), nil},
		{held("a", 8, 10*time.Second), nil}, {election.StatusResult{}, down}, {election.StatusResult{}, down},
		{held("a", 8, 8*time.Second), nil}, {held("b", 9, 10*time.Second), nil},
		{election.StatusResult{Status: election.Vacant, Number: 9, HoldOff: time.Second}, nil}, {vacant, nil},
	}
	for name, c := range map[string]struct {
		live bool
		want string
	}{
		"Lines": {false, "T vacant: nobody leads e\n" +
			"T held: a leads e with number 8, for another 10s\n" +
			"T unknown: down; asking again\n" +
			"T held: a leads e with number 8, for another 8s\n" +
			"T held: b leads e with number 9, for another 10s\n" +
			"T vacant: nobody leads e, which is held off for another 1s\n" +
			"T vacant: nobody leads e\n"},
		"Terminal": {true, "<T vacant: nobody leads e<T vacant: nobody leads e\n" +
			"T held: a leads e with number 8, for another 10s<T held: a leads e with number 8, for another 9s<T held: a leads e with number 8, for another 10s\n" +
			"T unknown: down; asking again<T unknown: down; asking again\n" +
			"T held: a leads e with number 8, for another 8s\n" +
			"T held: b leads e with number 9, for another 10s\n" +
			"T vacant: nobody leads e, which is held off for another 1s\n" +
			"T vacant: nobody leads e\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w := &watcher{election: "e", out: &out, live: c.live}
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for _, l := range looks {
				if err := w.show(at, l.st, l.err); err != nil {
					t.Fatal(err)
				}
			}
			w.end()
			got := strings.NewReplacer("\r\x1b[K", "<", "03:04:05", "T").Replace(out.String())
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestWatchThatCannot(t *testing.T) {
	for name, args := range map[string][]string{
		"bad id":  {"or ders", "--backend", "redis://127.0.0.1:1"},
		"bad URL": {"orders", "--backend", "mysql://h"},
		"every":   {"orders", "--backend", "redis://127.0.0.1:1", "--every", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := command(t, "", append([]string{"election", "watch"}, args...)...); r.code != exitUsage || r.err == "" || r.out != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}

// openTest opens an election backend for the length of the test.
func openTest(t *testing.T, url string) election.Backend {
	t.Helper()
	b, err := openElections(t.Context(), config.NewSecret(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}
