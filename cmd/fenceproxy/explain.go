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
	l, err := c.ruled(cfg)
	if err != nil {
		return err
	}
	var e explanation
	if l.Protocol == config.Postgres {
		e, err = explainSQL(c.Explain, c.SearchPath, l.Rules)
	} else {
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
		switch ok, why := t.OpenToAll(at, rules); {
		case t.Statements != 1:
			e.notes = append(e.notes, "a session without a token has to send each statement by itself")
		case !ok:
			e.notes = append(e.notes, fmt.Sprintf("a session without a token cannot send it, because of %s: it may read and write open tables alone, in simple statements", why))
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
	argv, ok := resp.SplitLine(c.Explain)
	if !ok || len(argv) == 0 {
		return e, usage("the command has quotes that do not end, or is none")
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
			e.verdict = "it names a fence's own key: nobody may send it through the proxy"
		}
	}
	switch {
	case cmd == nil:
	case cmd.Publishes() && l.OpenPublish:
		e.targets, e.verdict = nil, "it publishes, which is open on this listener: everybody may send it"
	case cmd.Class == policy.RedisRefused:
		e.verdict = "it administers the server: nobody may send it through the proxy"
	case cmd.Class == policy.RedisLeader:
		e.verdict = "it shows what others do, and is for sessions that hold a live token of any election"
	}
	return e, nil
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
	r.ok("%s: %d rules; what none matches: %s", l.Name, l.Rules.Len(), l.Rules.Describe(-1))
}
