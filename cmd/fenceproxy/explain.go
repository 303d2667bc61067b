package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/fenceproxy/fenceproxy/guard/redisfence"
	"github.com/fenceproxy/fenceproxy/internal/config"
	"github.com/fenceproxy/fenceproxy/policy"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
	"github.com/fenceproxy/fenceproxy/protocols/tlsconf"
)

// explain says which rule and which elections decide on a statement or command.
func (c *checkCmd) explain(ctx context.Context, cfg *config.Config, out io.Writer) error {
	if strings.TrimSpace(*c.Explain) == "" {
		return usage("--explain needs a statement or command")
	}
	l, err := c.ruled(cfg)
	if err != nil {
		return err
	}
	var e explanation
	switch {
	case l.Protocol == config.Postgres:
		path := "public"
		if c.SearchPath != nil {
			path = *c.SearchPath
		}
		e, err = explainSQL(*c.Explain, path, l.Rules)
	case c.SearchPath != nil:
		return usage("--search-path is for Postgres, and listener %s is for %s", l.Name, l.Protocol)
	default:
		e, err = c.explainRedis(ctx, l)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listener %s (%s)\n", l.Name, l.Protocol)
	for _, f := range l.Rules.Explain(e.targets) {
		what := "writes " + f.Target.String()
		switch f.Target.Kind {
		case policy.Function:
			what = "calls " + f.Target.String()
		case policy.Unknown:
			what = "may write anything: " + f.Target.String()
		}
		fmt.Fprintf(out, "  %s\n    %s\n", what, oneLine(explained(l.Rules, f.Decision)))
	}
	for _, line := range e.notes {
		fmt.Fprintf(out, "  %s\n", line)
	}
	if e.verdict != "" {
		fmt.Fprintln(out, e.verdict)
		if e.nobody {
			return &exitError{exitNo, nil}
		}
		return nil
	}
	switch d := l.Rules.Decide(e.targets); {
	case d.Deny:
		fmt.Fprintln(out, "nobody may send it")
		return &exitError{exitNo, nil}
	case d.Open && len(e.targets) == 0:
		fmt.Fprintln(out, "it writes nothing: no election is needed")
	case d.Open:
		fmt.Fprintln(out, "it writes only what is open: no election is needed")
	default:
		fmt.Fprintf(out, "needs the live token of %s\n", strings.Join(d.Elections, ", and of "))
	}
	return nil
}

// explained is what a decision comes to, and by which rule.
func explained(r *policy.Rules, d policy.Decision) string {
	switch {
	case d.Deny:
		return d.Why
	case len(d.Elections) > 1:
		return "needs " + strings.Join(d.Elections, ", ")
	case d.Open:
		return r.Describe(d.Rule)
	}
	by := r.Describe(d.Rule)
	if e := d.Elections[0]; !strings.Contains(by, fmt.Sprintf("%q", e)) {
		by += fmt.Sprintf(", here %q", e)
	}
	return by
}

// An explanation is what a statement or command does.
type explanation struct {
	targets []policy.Target
	notes   []string
	verdict string // where no rule decides
	nobody  bool   // the verdict is that nobody may send it
}

// ruled is the listener that is meant.
func (c *checkCmd) ruled(cfg *config.Config) (*config.Listener, error) {
	var named []string
	var found *config.Listener
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		if c.Listener == "" && l.Rules == nil || c.Listener != "" && l.Name != c.Listener {
			continue
		}
		named, found = append(named, l.Name), l
	}
	switch {
	case c.Listener != "" && found == nil:
		return nil, usage("%s has no listener %s", cfg.File, c.Listener)
	case found == nil:
		return nil, usage("no listener in %s has rules", cfg.File)
	case len(named) > 1:
		return nil, usage("several listeners have rules: say which is meant, with --listener %s", strings.Join(named, " or "))
	case found.Rules == nil:
		return nil, usage("listener %s has no rules: a session with a live token of any election that it serves may send everything", found.Name)
	}
	return found, nil
}

func explainSQL(text, path string, rules *policy.Rules) (explanation, error) {
	var e explanation
	schemas, ok := policy.ParseSearchPath(path)
	if !ok {
		return e, usage("--search-path %q is no list of schemas", path)
	}
	sql := policy.NewSQL(0)
	t := sql.Targets([]byte(text))
	if t.Unparsed() {
		e.notes = append(e.notes, "it cannot be parsed, and the server would refuse it too, unless it knows more than this parser does")
	}
	at := policy.SearchPath{Known: true, Schemas: schemas}
	e.targets = t.Writing(at, rules)
	if rules.Decide(e.targets).Open && len(e.targets) > 0 {
		const needs = "needs the live token of any election that the listener serves: all that it writes is open, but a session without a token is refused (25006)"
		if t.Statements != 1 {
			e.notes = append(e.notes, "a session without a token has to send each statement in a message of its own")
			e.verdict = needs
		}
		if ok, why := t.OpenToAll(at, rules); !ok {
			e.notes = append(e.notes, fmt.Sprintf("a session without a token cannot send it, because of %s: it may read and write open tables alone, in simple statements", why))
			e.verdict = needs
		}
	}
	if t.PathMatters() {
		e.notes = append(e.notes, fmt.Sprintf("names without a schema are looked for in the search path %s (--search-path)", path))
	}
	for _, x := range t.Executes {
		e.notes = append(e.notes, fmt.Sprintf("what EXECUTE %s writes is that of the statement that was prepared under this name", x.Name))
	}
	if v := sql.Inspect([]byte(text)); len(e.targets) == 0 && v.Reason != policy.SQLReads {
		e.verdict = "it writes nothing that a rule could name, and is for sessions that hold a live token of any election"
	}
	return e, nil
}

func (c *checkCmd) explainRedis(ctx context.Context, l *config.Listener) (explanation, error) {
	var e explanation
	argv, ok := resp.SplitLine(*c.Explain)
	if !ok || len(argv) == 0 {
		return e, usage("the command has quotes that do not end, or is none")
	}
	if e, ok := explainOwn(argv, l); ok {
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	control, end, err := openControl(ctx, l)
	if err != nil {
		return e, err
	}
	defer end()
	cmd, err := resp.Describe(ctx, control, argv)
	if err != nil {
		return e, &exitError{exitUnavailable, fmt.Errorf("asking the server what the command is: %w", err)}
	}
	e.targets = cmd.Targets(argv)
	for _, t := range e.targets {
		if strings.HasPrefix(t.Name, redisfence.Prefix+"{") {
			e.verdict, e.nobody = "it names a fence's own key: nobody may send it through the proxy", true
		}
	}
	switch {
	case cmd == nil:
	case cmd.Publishes() && l.OpenPublish:
		e.targets, e.verdict, e.nobody = nil, "it publishes, which is open on this listener: everybody may send it", false
	case e.verdict == "" && cmd.Scripts() && l.Rules.Decide(e.targets).Open:
		e.verdict = "it writes only what is open, but a script can write more: it is for sessions that hold a live token of any election"
	case cmd.Class == policy.RedisRefused:
		e.verdict, e.nobody = "it administers the server: nobody may send it through the proxy", true
	case cmd.Class == policy.RedisLeader:
		e.verdict = "it shows what others do, and is for sessions that hold a live token of any election"
	}
	return e, nil
}

// explainOwn is for what the proxy answers itself; ok is false for everything else.
func explainOwn(argv [][]byte, l *config.Listener) (e explanation, ok bool) {
	word := func(i int, s string) bool { return i < len(argv) && strings.EqualFold(string(argv[i]), s) }
	switch {
	case word(0, "ELECTION") && !l.ElectionCommands.On:
		e.verdict, e.nobody = "ELECTION is not set up on this listener (election_commands): nobody may send it", true
	case word(0, "ELECTION"):
		e.verdict = "the proxy answers it itself, to whom election_commands lets: no rule decides"
	case word(0, "FENCE") && word(1, "GATE") && len(l.GateCommands) == 0:
		e.verdict, e.nobody = "FENCE GATE is not set up on this listener (gate_commands): nobody may send it", true
	case word(0, "FENCE"):
		e.verdict = "the proxy answers it itself, to everybody: no rule decides"
	default:
		return e, false
	}
	return e, true
}

// openControl opens the control connection of a listener for Redis.
func openControl(ctx context.Context, l *config.Listener) (_ resp.Control, end func(), err error) {
	up, err := tlsconf.OpenClient(*l.UpstreamTLS)
	if err != nil {
		return nil, nil, err
	}
	if l.Group != config.Cluster {
		f, err := openRedisFence(ctx, l, up, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, nil, err
		}
		return f, func() { _ = f.Close() }, nil
	}
	f, err := openClusterFence(ctx, l, up, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	end = func() { _ = f.Close() }
	if err := f.Topology().Refresh(ctx); err != nil {
		end()
		return nil, nil, &exitError{exitUnavailable, err}
	}
	for _, n := range f.Topology().View().Nodes() {
		if n.Answered {
			return f.Topology().Client(n.Addr), end, nil
		}
	}
	end()
	return nil, nil, &exitError{exitUnavailable, errors.New("no node of the cluster answers")}
}

// rules reports what is hardly meant in a listener's rules.
func (c *checkCmd) rules(l *config.Listener, r *checkReport) {
	if l.Rules == nil {
		return
	}
	overlaps, complete := l.Rules.Overlaps()
	for _, o := range overlaps {
		fix := "The first rule that matches counts. Put the exception before the rule that it is one of, or make the patterns exclude each other."
		if o.Never {
			fix = "Leave it out, or put it before the rule that takes its names."
		}
		r.warn(fix, "%s: %s", l.Name, o.Text)
	}
	if !complete {
		r.warn("", "%s: there are too many rules to compare them all; some may overlap", l.Name)
	}
	for _, doubt := range l.Rules.Doubts() {
		r.warn("Write it in lower case, or with a backslash before each capital letter that is meant.", "%s: %s", l.Name, doubt)
	}
	count, rest := fmt.Sprintf("%d rules", l.Rules.Len()), "nobody may write it"
	if l.Rules.Len() == 1 {
		count = "1 rule"
	}
	if d := l.Rules.Default(); d != "" {
		rest = fmt.Sprintf("the listener's election %q", d)
	}
	r.ok("%s: %s; what none matches: %s", l.Name, count, rest)
}
