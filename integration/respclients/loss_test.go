package respclients

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fenceproxy/fenceproxy/guard"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// The keys of a loss.
const (
	queue  = "{k}:queue"  // a list that nobody but the old leader pops
	stream = "{k}:stream" // with a group "g" that nobody but the old leader reads
	flood  = "{k}:flood"  // a counter that the old leader adds to
)

// losing runs a script that loses leadership, in each of the ways to notice. For each it
// connects with its token, with the library's own settings for reconnecting and trying
// again, and then prints
//
//	@blocked    and waits in a command that blocks
//	@flooding   and adds to {k}:flood until it is stopped by an error
//	@idle       and waits for a line: another leads by then
//	@publish    and hears of {k}:channel: it is subscribed again
//
// In each of these it has writes of a key {k}:late… under way or ahead, which must not be
// applied. It prints what the client sees of the loss in lines that begin with "lost". Then,
// with the same client object, it reads, prints "again reads", is refused a write of a key
// {k}:late…, and prints that in a line that begins with "again refused". Then it prints
//
//	@again  and waits for a line, a new token that it shall use from then on,
//
// adds 1 to {k}:kept with it and prints "again writes".
func (c *script) losing(t *testing.T, ctx context.Context, s *stage, p func(guard.Credential) place, closed string) {
	t.Helper()
	s.fresh(t, ctx)
	s.block(t, ctx)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l := &loss{stage: s, holder: s.lead(t, ctx, c.name), name: c.name}
	in, answers := io.Pipe()
	out, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := c.run(ctx, p(l.holder), "loss", in, w)
		_ = in.Close()
		ended <- err
		_ = w.Close()
	}()
	var all strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if answer := l.event(t, ctx, lines.Text()); answer != "" {
			fmt.Fprintln(answers, answer)
		} else if !strings.HasPrefix(lines.Text(), "@") {
			fmt.Fprintln(&all, lines.Text())
		}
	}
	_ = answers.Close()
	if err := <-ended; err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, all.String())
	}
	s.resign(t, ctx, l.holder)
	t.Logf("%s loses:\n%s", c.name, all.String())
	l.check(t, ctx, all.String(), regexp.MustCompile(closed))
}

// A loss is one script's run of losing.
type loss struct {
	*stage
	name      string
	holder    guard.Credential
	takeovers int
}

// event does what a line of the script's asks for, and returns what to answer.
func (l *loss) event(t *testing.T, ctx context.Context, line string) (answer string) {
	t.Helper()
	switch line {
	case "@blocked":
		l.waitForBlocked(t, ctx, 1)
		l.takeOver(t, ctx)
	case "@flooding":
		before := l.counted(t, ctx)
		testenv.Eventually(t, "the flood runs", func() bool { return l.counted(t, ctx) > before+500 })
		l.takeOver(t, ctx)
	case "@idle":
		l.takeOver(t, ctx)
		return "go"
	case "@publish":
		testenv.Eventually(t, "somebody hears", func() bool { return l.do(t, ctx, "PUBLISH", "{k}:channel", "again").(int64) > 0 })
	case "@again":
		l.checkState(t, ctx)
		l.resign(t, ctx, l.holder)
		l.holder = l.lead(t, ctx, l.name)
		return l.holder.Token.Reveal()
	}
	return ""
}

// takeOver makes another the leader, who writes at once what the old one could take, and
// notes how far the flood had come.
func (l *loss) takeOver(t *testing.T, ctx context.Context) {
	t.Helper()
	l.resign(t, ctx, l.holder)
	l.holder = l.lead(t, ctx, "other")
	l.takeovers++
	l.write(t, ctx, l.holder, "EVAL", `redis.call('RPUSH', KEYS[1], 'x')
		redis.call('XADD', KEYS[2], '*', 'f', 'v')
		return redis.call('SET', KEYS[4], redis.call('GET', KEYS[3]) or 0)`, 4, queue, stream, flood, "{k}:then")
}

func (l *loss) counted(t *testing.T, ctx context.Context) int64 {
	t.Helper()
	n, err := l.admin.Get(ctx, flood).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return n
}

// checkState checks that nothing of the old leader's was applied after the new one's first
// write. Everything that the script sent has been answered by now, or never will be.
//
// INVARIANT (of the proxy): a connection that was severed applies nothing any more.
func (l *loss) checkState(t *testing.T, ctx context.Context) {
	t.Helper()
	if late := l.do(t, ctx, "KEYS", "*late*").([]any); len(late) > 0 {
		t.Errorf("writes of the old leader's landed: %v", late)
	}
	if n := l.do(t, ctx, "LLEN", queue).(int64); n != 1 {
		t.Errorf("the queue has %d elements, and not 1: the old leader popped", n)
	}
	groups, err := l.admin.XInfoGroups(ctx, stream).Result()
	if err != nil || len(groups) != 1 || groups[0].EntriesRead != 0 || groups[0].Pending != 0 {
		t.Errorf("the old leader read from the stream: %+v %v", groups, err)
	}
	then, err := l.admin.Get(ctx, "{k}:then").Int64()
	if now := l.counted(t, ctx); err != nil || now != then {
		t.Errorf("%d late writes (%v)", now-then, err)
	}
	l.block(t, ctx)
}

// block empties the queue, and makes the stream one of which nothing is to be read.
func (s *stage) block(t *testing.T, ctx context.Context) {
	t.Helper()
	s.do(t, ctx, "DEL", queue, stream)
	s.do(t, ctx, "XGROUP", "CREATE", stream, "g", "$", "MKSTREAM")
}

func (l *loss) check(t *testing.T, ctx context.Context, transcript string, closed *regexp.Regexp) {
	t.Helper()
	lost, reads, refused, writes := 0, 0, 0, 0
	for line := range strings.Lines(transcript) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "lost "):
			lost++
			if !strings.Contains(line, "FENCED ") && !closed.MatchString(line) {
				t.Errorf("not a clear error: %s", line)
			}
		case line == "again reads":
			reads++
		case strings.HasPrefix(line, "again refused ") && strings.Contains(line, "FENCED "):
			refused++
		case line == "again writes":
			writes++
		case line != "done":
			t.Errorf("loss: %s", line)
		}
	}
	if n := l.takeovers; n == 0 || lost < n || reads != n || refused != n || writes != n {
		t.Errorf("%d takeovers, %d errors, %d recoveries that read, %d that were refused a write, %d that wrote at last", n, lost, reads, refused, writes)
	}
	if kept, err := l.admin.Get(ctx, "{k}:kept").Int(); err != nil || kept != writes {
		t.Errorf("%d of %d writes with a new token (%v)", kept, writes, err)
	}
}
