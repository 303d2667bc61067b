package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/guard"
)

// Load reads a configuration file. The error is Mistakes where the file has some.
func Load(path string, env Lookup) (*Config, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return Parse(path, text, env)
}

// Parse is Load of a text; file is its name in messages, and its folder is where
// the names of other files start from.
func Parse(file string, text []byte, env Lookup) (*Config, error) {
	r := &reader{file: file, lookup: env}
	c := &Config{File: file}
	if root := r.parse(text); root != nil {
		r.config(root.object(), c)
	}
	if len(r.mistakes) == 0 {
		return c, nil
	}
	sort.SliceStable(r.mistakes, func(i, j int) bool {
		a, b := r.mistakes[i].Pos, r.mistakes[j].Pos
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	return nil, r.mistakes[:min(len(r.mistakes), maxMistakes)]
}

func (r *reader) config(o *object, c *Config) {
	if f := o.need("elections", "who keeps the elections"); f != nil {
		e := f.object()
		backend, from := e.secret("backend", "the election backend's URL, for instance redis://localhost:6379")
		if from != nil {
			if strings.HasPrefix(backend, "memory:") {
				from.mistake("memory elections live in one process: a proxy that kept them could never be asked for a token by anyone")
			} else {
				from.backend(backend)
			}
			c.Elections = Elections{Backend: NewSecret(backend), Pos: from.pos}
		}
		e.close()
	}
	r.guard(o.take("guard"), &c.Guard)
	r.admin(o.take("admin"), &c.Admin)
	r.gates(o.take("gates"), c)
	f := o.take("listeners")
	if f == nil && c.Gates == nil {
		r.mistake(o.pos, "listeners", "missing: at least one address that clients connect to")
	}
	if f != nil {
		for _, item := range f.list() {
			c.Listeners = append(c.Listeners, r.listener(item.object(), c))
		}
	}
	r.holdsOff(c)
	r.reached(c)
	c.Log = Log{Level: DefaultLogLevel, Format: DefaultLogFormat}
	if f := o.take("log"); f != nil {
		l := f.object()
		if f := l.take("level"); f != nil {
			c.Log.Level = f.oneOf("debug", "info", "warn", "error")
		}
		if f := l.take("format"); f != nil {
			c.Log.Format = f.oneOf("text", "json")
		}
		l.close()
	}
	c.Drain = DefaultDrain
	if f := o.take("drain"); f != nil {
		c.Drain = f.duration(0, time.Hour)
	}
	if f := o.take("loops"); f != nil {
		c.Loops = f.loops()
	}
	o.close()
}

// maxLoops bounds the loops.
const maxLoops = 64

// loops reads how many loops there are to be, as Config.Loops.
func (f *field) loops() int {
	s, ok := f.text()
	switch _, err := strconv.Atoi(s); {
	case s == "auto":
		return 0
	case s == "off":
		return -1
	case ok && err != nil:
		f.mistake("%q is neither auto, off nor a number", s)
		return 0
	}
	return f.number(1, maxLoops)
}

func (r *reader) guard(f *field, g *Guard) {
	*g = Guard{guard.DefaultValidateEvery, guard.DefaultPermitFor, guard.DefaultTimeout, guard.DefaultAdvanceTimeout}
	if f == nil {
		return
	}
	o := f.object()
	for _, k := range []struct {
		name string
		to   *time.Duration
		most time.Duration
	}{
		{"validate_every", &g.ValidateEvery, time.Hour},
		{"permit", &g.Permit, 24 * time.Hour},
		{"timeout", &g.Timeout, time.Hour},
		{"advance_timeout", &g.AdvanceTimeout, time.Hour},
	} {
		if f := o.take(k.name); f != nil {
			*k.to = f.duration(10*time.Millisecond, k.most)
		}
	}
	if g.Permit > 0 && g.ValidateEvery > g.Permit/2 {
		f.mistake("validate_every (%v) must be at most half of permit (%v), so that a permit outlives one question that went unanswered", g.ValidateEvery, g.Permit)
	}
	o.close()
}

func (r *reader) listener(o *object, c *Config) Listener {
	others := c.Listeners
	l := Listener{Pos: o.pos, MaxConns: DefaultMaxConns}
	if f := o.need("protocol", "postgres, redis or valkey"); f != nil {
		l.Protocol = Protocol(f.oneOf(string(Postgres), string(Redis), string(Valkey)))
	}
	if f := o.need("listen", "the host:port that clients connect to"); f != nil {
		l.Pos = f.pos
		l.Listen = f.addressOrSocket(true, l.Protocol)
		for _, other := range others {
			if l.Listen != "" && other.Listen == l.Listen && !strings.HasSuffix(l.Listen, ":0") {
				f.mistake("%s is already the address of listener %s on line %d", l.Listen, other.Name, other.Pos.Line)
			}
		}
	}
	r.upstreams(o, &l)
	control, from := o.secret("control", "the URL of the control connection")
	if from != nil {
		switch l.Protocol {
		case Postgres:
			from.url(control, "postgres", "postgresql")
		case Redis, Valkey:
			from.redisControl(control, &l)
		}
		l.Control = NewSecret(control)
	}
	r.elections(o, &l)
	r.elect(o.take("elect"), &l, others)
	r.rules(o, &l)
	r.electionCommands(o, &l)
	r.bound(o, &l)
	r.gateCommands(o, &l, c.Gates)
	r.encryption(o, &l)
	r.cluster(o, from, control, &l)
	r.scram(o, &l)
	r.limits(o, &l)
	if f := o.take("max_conns"); f != nil {
		l.MaxConns = f.number(1, 1_000_000)
	}
	if f := o.take("publish"); f != nil {
		if l.Protocol == Postgres {
			f.mistake("is for redis and valkey only")
		}
		l.OpenPublish = f.oneOf("fenced", "open") == "open"
	}
	if f := o.take("nodes"); f != nil {
		if l.Protocol == Postgres {
			f.mistake("is for redis and valkey only")
		}
		if l.Group == Cluster {
			f.mistake("is not for a cluster, whose nodes are all swept")
		}
		for _, n := range f.list() {
			l.Nodes = append(l.Nodes, n.address(false))
		}
	}
	if f := o.take("prepared_transactions"); f != nil {
		if l.Protocol != Postgres {
			f.mistake("is for postgres only")
		}
		l.PreparedTransactions = f.oneOf("refuse", "allow") == "allow"
	}
	if f := o.take("replication"); f != nil {
		if l.Protocol != Postgres {
			f.mistake("is for postgres only")
		}
		l.Replication = f.oneOf("refuse", "read") == "read"
	}
	l.Name = l.Listen
	if f := o.take("name"); f != nil {
		if l.Name, _ = f.text(); strings.ContainsAny(l.Name, "\r\n\t ") {
			f.mistake("must not hold spaces")
		}
		for _, other := range others {
			if l.Name != "" && other.Name == l.Name {
				f.mistake("%q is already the name of the listener on line %d", l.Name, other.Pos.Line)
			}
		}
	}
	o.close()
	return l
}

func (r *reader) elections(o *object, l *Listener) {
	own := o.take("election")
	if own != nil {
		if s, ok := own.text(); ok {
			if err := election.CheckID(s); err != nil {
				own.mistake("%v", err)
			}
			l.Election = s
		}
	}
	f := o.take("elections")
	if f == nil {
		return
	}
	for _, item := range f.list() {
		s, ok := item.text()
		if !ok {
			continue
		}
		id := strings.TrimSuffix(s, "*")
		if id != "" {
			if err := election.CheckID(id); err != nil {
				item.mistake("%v (a * may stand at the end only)", err)
				continue
			}
		}
		if slices.Contains(l.Elections, s) {
			item.mistake("%q is given twice", s)
		}
		l.Elections = append(l.Elections, s)
	}
	if own != nil && l.Election != "" && len(l.Elections) > 0 && !l.Serves(l.Election) {
		own.mistake("%q is not among the listener's elections", l.Election)
	}
}

// address reads f as host:port; any host and port 0 will do to listen on.
func (f *field) address(listen bool) string {
	s, ok := f.text()
	if !ok {
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		f.mistake("%q is not host:port", s)
		return ""
	}
	least := 1
	if listen {
		least = 0
	} else if host == "" {
		f.mistake("%q names no host", s)
		return ""
	}
	if n, err := strconv.Atoi(port); err != nil || n < least || n > 65535 {
		f.mistake("port %q is not a number from %d to 65535", port, least)
		return ""
	}
	return s
}

// backend checks that s is an election backend's URL, as far as its form goes.
func (f *field) backend(s string) {
	schemes := []string{
		"redis", "rediss", "valkey", "valkeys", "unix", "redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster",
		"redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel",
		"postgres", "postgresql", "zookeeper", "kubernetes",
	}
	scheme, rest, ok := strings.Cut(s, "://")
	several := strings.Contains(scheme, "+") || scheme == "zookeeper"
	switch {
	case ok && scheme == "kubernetes":
		if !strings.HasPrefix(rest, "/") {
			f.mistake("must be written with three slashes, as kubernetes:///namespace")
		}
	case ok && several && slices.Contains(schemes, scheme):
		// net/url takes no list of hosts with ports; the backend itself checks the rest.
		authority, _, _ := strings.Cut(rest, "?")
		authority, _, _ = strings.Cut(authority, "/")
		authority = authority[strings.LastIndexByte(authority, '@')+1:]
		if slices.Contains(strings.Split(authority, ","), "") {
			f.mistake("names no host")
		}
	default:
		f.url(s, schemes...)
	}
}

// url checks that s is a URL of one of the schemes. It never shows s.
func (f *field) url(s string, schemes ...string) {
	if s == "" {
		return
	}
	// Without a user there is no secret in it.
	if host, port, err := net.SplitHostPort(s); err == nil && host != "" && !strings.ContainsAny(s, "/@") {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			f.mistake("is not a URL: write %s://%s", schemes[0], s)
			return
		}
	}
	u, err := url.Parse(s)
	if err != nil {
		f.mistake("is not a URL (percent-encode special characters of the password, or let ${NAME} do it)")
		return
	}
	if !slices.Contains(schemes, u.Scheme) {
		hint := ""
		if near := suggest(u.Scheme, schemes); near != "" {
			hint = fmt.Sprintf(" (did you mean %s?)", near)
		}
		if u.Scheme == "" {
			f.mistake("is not a URL: it must begin with %s://", schemes[0])
			return
		}
		f.mistake("a URL of scheme %q: must be one of %s%s", u.Scheme, strings.Join(schemes, ", "), hint)
		return
	}
	switch {
	case u.Scheme == "unix":
		if u.Host != "" || u.Path == "" {
			f.mistake("names no socket: write unix:///path, or unix://user:password@/path")
		}
	case u.Host == "" && !(strings.HasPrefix(u.Scheme, "postgres") && u.Query().Get("host") != ""): // a Unix socket's
		f.mistake("names no host")
	}
}
