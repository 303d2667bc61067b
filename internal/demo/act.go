package demo

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// An act is the story told once: two workers, a pause, a takeover, a late write.
type act struct {
	*demo
	stage  *stage
	fenced bool
	// addr is where the workers write to, target the table or list.
	addr, target, election string

	a, b    *child
	reports chan report
	quit    chan struct{}
	// wrote counts the writes that each worker reported.
	wrote map[string]int
	// numberA and numberB are the fencing numbers that they lead with.
	numberA, numberB int64
}

// An outcome is what an act has shown.
type outcome struct {
	wire   string
	fenced bool
	// stale is the write that came too late; row is where it landed, from one, or
	// zero if it did not.
	stale string
	row   int
}

// play plays the act and checks that everything that it says was so.
func (a *act) play(ctx context.Context) (outcome, error) {
	a.reports, a.quit, a.wrote = make(chan report, 64), make(chan struct{}), map[string]int{}
	defer func() {
		close(a.quit)
		for _, w := range []*child{a.a, a.b} {
			if w != nil {
				w.kill()
			}
		}
	}()
	o := outcome{wire: a.stage.wire, fenced: a.fenced}
	if err := a.takeOver(ctx); err != nil {
		return o, err
	}
	var err error
	if o.stale, err = a.wakeUp(ctx); err != nil {
		return o, err
	}
	// The new leader goes on as if nothing had happened.
	target := a.wrote["B"] + 3
	if _, err := a.until(ctx, "", func(r report) bool { return a.wrote["B"] >= target }); err != nil {
		return o, err
	}
	a.end()
	entries, err := a.stage.read(ctx, a.target)
	if err != nil {
		return o, err
	}
	if err := a.judge(entries, &o); err != nil {
		return o, err
	}
	a.show(entries, o)
	return o, nil
}

// takeOver goes from two workers to a new leader that writes while the old one is
// stopped, just between its check and its write.
func (a *act) takeOver(ctx context.Context) error {
	var err error
	if a.a, err = a.start("A"); err != nil {
		return err
	}
	first, err := a.until(ctx, "worker A campaigns", is("A", Acquired))
	if err != nil {
		return err
	}
	a.numberA = first.Number
	if a.b, err = a.start("B"); err != nil {
		return err
	}
	if _, err := a.until(ctx, "worker B campaigns", is("B", StandsBy)); err != nil {
		return err
	}
	if _, err := a.until(ctx, "", func(report) bool { return a.wrote["A"] >= a.writes }); err != nil {
		return err
	}
	if _, err := a.until(ctx, "", is("A", Checked)); err != nil {
		return err
	}
	if err := a.a.stop(ctx); err != nil {
		return err
	}
	a.narrate("A has checked its lease, it is good, and A is about to write. Just then it is stopped (SIGSTOP), as a long garbage collection or a stalled virtual machine would.")
	second, err := a.until(ctx, "A's lease runs out", is("B", Acquired))
	if err != nil {
		return err
	}
	a.numberB = second.Number
	if a.fenced {
		a.narrate("B connects. Before its first write the proxy raises the fence, which stands inside " + a.stage.product + " itself, to B's number, and ends every connection of a lower one.")
	}
	if a.numberB <= a.numberA {
		return fmt.Errorf("worker B leads with number %d, which is not above A's %d", a.numberB, a.numberA)
	}
	_, err = a.until(ctx, "", func(report) bool { return a.wrote["B"] >= a.writes/2 })
	return err
}

// wakeUp lets the old leader go on and returns its late write.
func (a *act) wakeUp(ctx context.Context) (stale string, err error) {
	a.narrate("A is continued (SIGCONT). For A no time has passed: its check was good, so it writes.")
	if err := a.a.resume(); err != nil {
		return "", err
	}
	late, err := a.until(ctx, "", func(r report) bool { return r.from == "A" && r.Write != "" })
	if err != nil {
		return "", err
	}
	switch {
	case !a.fenced && late.Kind != Wrote:
		return "", fmt.Errorf("without the fence the late write was refused: %s", late.Error)
	case !a.fenced:
		a.say("A", a.paint(red, "is not refused")+": nothing that it asked could have told it")
		_, err = a.until(ctx, "", is("A", Lost))
		return late.Write, err
	case late.Kind != Refused:
		return "", fmt.Errorf("the late write %s was not refused", late.Write)
	}
	again, err := a.until(ctx, "", func(r report) bool { return r.from == "A" && r.Write != "" })
	if err != nil {
		return "", err
	}
	if again.Kind != RefusedAgain || again.Code != a.stage.refusal {
		return "", fmt.Errorf("with its old token on a new connection A was not refused by the fence but: %s %s", again.Kind, again.Error)
	}
	_, err = a.until(ctx, "", is("A", Lost))
	return late.Write, err
}

// judge compares what the resource holds with what is claimed.
func (a *act) judge(entries []entry, o *outcome) error {
	firstB := -1
	for i, e := range entries {
		switch {
		case e.number == a.numberB && firstB < 0:
			firstB = i
		case firstB >= 0 && e.number < a.numberB && e.write != o.stale:
			return fmt.Errorf("entry %d (%s) has number %d after number %d had written", i+1, e.write, e.number, a.numberB)
		}
		if e.write == o.stale {
			o.row = i + 1
		}
	}
	switch {
	case firstB < 1:
		return fmt.Errorf("of %d entries none of B follows one of A", len(entries))
	case a.fenced && o.row > 0:
		return fmt.Errorf("the stale write %s landed as entry %d in spite of the fence", o.stale, o.row)
	case !a.fenced && o.row <= firstB+1:
		return fmt.Errorf("the stale write %s did not land after B's writes without the fence", o.stale)
	}
	return nil
}

// start starts a worker.
func (a *act) start(name string) (*child, error) {
	args := []string{
		"demo-worker", "--name", name, "--wire", a.stage.wire, "--addr", a.addr, "--target", a.target,
		"--elections", a.stage.elections, "--election", a.election,
		"--ttl", a.ttl.String(), "--every", a.every.String(),
	}
	if a.fenced {
		args = append(args, "--fenced")
	}
	return startWorker(name, a.self, args, a.reports, a.quit)
}

func is(worker string, kind EventKind) func(report) bool {
	return func(r report) bool { return r.from == worker && r.Kind == kind }
}

// until shows what the workers report until one report is the one wanted, and
// returns that. waiting says what is waited for.
func (a *act) until(ctx context.Context, waiting string, wanted func(report) bool) (report, error) {
	since := time.Now()
	limit := time.NewTimer(a.ttl + a.patience)
	defer limit.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	gone := func(c *child) <-chan struct{} {
		if c == nil {
			return nil
		}
		return c.done
	}
	for {
		select {
		case <-ctx.Done():
			return report{}, errInterrupted
		case <-limit.C:
			return report{}, fmt.Errorf("waited %v in vain (%s): is this machine very busy?", a.ttl+a.patience, waiting)
		case <-gone(a.a):
			return report{}, a.a.ended()
		case <-gone(a.b):
			return report{}, a.b.ended()
		case <-tick.C:
			if waiting != "" {
				a.waiting(waiting, since)
			}
		case r := <-a.reports:
			a.tell(r)
			if r.Kind == Failed {
				return r, fmt.Errorf("worker %s: %s", r.from, r.Error)
			}
			if wanted(r) {
				return r, nil
			}
			if a.numberB == 0 && (r.Kind == Refused || r.Kind == RefusedAgain) {
				return r, fmt.Errorf("worker %s was refused while it led: %s", r.from, r.Error)
			}
			if r.Kind == Lost {
				return r, fmt.Errorf("worker %s lost its lease of %v by itself: is this machine very busy?", r.from, a.ttl)
			}
		}
	}
}

// tell shows one report.
func (a *act) tell(r report) {
	switch r.Kind {
	case Acquired:
		a.say(r.from, "leads, with fencing number "+strconv.FormatInt(r.Number, 10))
	case StandsBy:
		if a.numberB > 0 {
			return // it has just said so
		}
		a.say(r.from, a.paint(dim, "stands by: "+r.Leader+" leads"))
	case Wrote:
		a.wrote[r.from]++
		a.tick(r.from)
	case Refused:
		a.say(r.from, a.paint(green, "is refused")+" on the connection that it has had all along:")
		a.quote(green, r.Error)
	case RefusedAgain:
		a.say(r.from, "connects anew with its old token, writes again and "+a.paint(green, "is refused")+":")
		a.quote(green, r.Error)
	case Lost:
		a.say(r.from, "asks the election backend, learns that it has lost, and stands by")
	case Checked, Failed:
	}
}

// show prints what the resource holds, with the stale write marked.
func (a *act) show(entries []entry, o outcome) {
	a.blank()
	a.line("   " + a.paint(bold, "What the "+a.stage.holds+" holds, in the order of arrival:"))
	a.line("   " + a.paint(dim, fmt.Sprintf("%5s  %-6s  %-14s  %s", "", "worker", "fencing number", "write")))
	for i, e := range entries {
		first := i == 0 || entries[i-1].number != e.number
		last := i == len(entries)-1 || entries[i+1].number != e.number
		if !first && !last {
			if entries[i-1].number == e.number && (i < 2 || entries[i-2].number != e.number) {
				a.line("   " + a.paint(dim, fmt.Sprintf("%5s", a.pick("⋮", ":"))))
			}
			continue
		}
		code := cyan
		if e.worker == "B" {
			code = magenta
		}
		row := fmt.Sprintf("%5d  %-6s  %-14d  %s", i+1, e.worker, e.number, e.write)
		if i+1 == o.row {
			a.line("   " + a.paint(red, row+a.pick("   ◀ STALE", "   <- STALE")+": number "+strconv.FormatInt(a.numberB, 10)+" had already written"))
			continue
		}
		a.line("   " + a.paint(code, row))
	}
	if a.fenced {
		a.verdict(true, fmt.Sprintf("A's late write %s is not there: the %s refused it, and B wrote on undisturbed.", o.stale, "proxy"))
		return
	}
	a.verdict(false, fmt.Sprintf("A's late write %s landed as number %d in the %s, over what the new leader had written. Leader election alone cannot stop it.", o.stale, o.row, a.stage.holds))
}
