package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/protocols"
	"github.com/fenceproxy/fenceproxy/protocols/pg"
)

const good = `
elections:
  backend: redis://127.0.0.1:6379
listeners:
  - protocol: postgres
    listen: 127.0.0.1:6432
    upstream: 127.0.0.1:5432
    control: postgres://fenceproxy@127.0.0.1:5432/postgres
`

func env(vars map[string]string) Lookup {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func TestDefaults(t *testing.T) {
	c, err := Parse("f.yaml", []byte(good), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if g := c.Guard.Config(); g.ValidateEvery != time.Second || g.PermitFor != 5*time.Second ||
		g.Timeout != 2*time.Second || g.AdvanceTimeout != 30*time.Second {
		t.Errorf("guard %+v", g)
	}
	if c.Log != (Log{"info", "text"}) || c.Drain != 10*time.Second {
		t.Errorf("log %+v, drain %v", c.Log, c.Drain)
	}
	l := c.Listeners[0]
	if l.Name != "127.0.0.1:6432" || l.MaxConns != 10000 || l.Pos.String() != "f.yaml:6:5" {
		t.Errorf("listener %q, %d, %v", l.Name, l.MaxConns, l.Pos)
	}
	if !l.Serves("anything") {
		t.Error("a listener without elections serves all")
	}
}

// TestMistakes has one file a mistake: each must be told with its place and key.
func TestMistakes(t *testing.T) {
	// change replaces one line of the good file.
	change := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %q in the good file", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	const listen = "    listen: 127.0.0.1:6432\n"
	const protocol = "  - protocol: postgres\n"
	for name, c := range map[string]struct {
		file string
		want string // the lines, without f.yaml:
	}{
		"empty":          {"", "1:1: the file is empty: see docs/configuration.md"},
		"comment only":   {"# nothing\n", "1:1: the file is empty: see docs/configuration.md"},
		"a list":         {"- a\n", "1:1: must be a mapping of keys to values, not a list\n1:1: elections: missing: who keeps the elections\n1:1: listeners: missing: at least one address that clients connect to"},
		"two documents":  {good + "---\na: 1\n", "10:1: a second document: the configuration is one"},
		"unknown key":    {change("listen:", "lisen:"), "5:5: listeners[0].listen: missing: the host:port that clients connect to\n6:5: listeners[0].lisen: unknown key: did you mean listen?"},
		"unknown, far":   {good + "wibble: 1\n", "9:1: wibble: unknown key: the keys here are elections, guard, admin, gates, listeners, log, drain, loops"},
		"hyphen":         {good + "guard:\n  validate-every: 1s\n", "10:3: guard.validate-every: unknown key: did you mean validate_every?"},
		"twice":          {change(listen, listen+listen), "7:5: listeners[0].listen: given twice, first on line 6"},
		"section twice":  {good + "elections:\n  backend: redis://x\n", "9:1: elections: given twice, first on line 2"},
		"no value":       {change("127.0.0.1:6432", ""), "6:5: listeners[0].listen: must be a text, not nothing"},
		"empty text":     {change("127.0.0.1:6432", `""`), "6:5: listeners[0].listen: is empty"},
		"not host:port":  {change("127.0.0.1:6432", "6432"), `6:5: listeners[0].listen: "6432" is not host:port`},
		"port range":     {change("127.0.0.1:6432", "127.0.0.1:70000"), `6:5: listeners[0].listen: port "70000" is not a number from 0 to 65535`},
		"port zero":      {change("127.0.0.1:5432\n", "127.0.0.1:0\n"), `7:5: listeners[0].upstream: port "0" is not a number from 1 to 65535`},
		"no host":        {change("upstream: 127.0.0.1:5432", "upstream: :5432"), `7:5: listeners[0].upstream: ":5432" names no host`},
		"a URL":          {change("upstream: 127", "upstream: redis://127"), `7:5: listeners[0].upstream: "redis://127.0.0.1:5432" is not host:port`},
		"loop":           {change("upstream: 127.0.0.1:5432", "upstream: 127.0.0.1:6432"), "7:5: listeners[0].upstream: is the listener's own address"},
		"protocol":       {change("protocol: postgres", "protocol: postgresql"), `5:5: listeners[0].protocol: "postgresql" is not one of postgres, redis, valkey (did you mean postgres?)`},
		"control bare":   {change("control: postgres://fenceproxy@127.0.0.1:5432/postgres", "control: 127.0.0.1:5432"), "8:5: listeners[0].control: is not a URL: write postgres://127.0.0.1:5432"},
		"relative path":  {change("listen: 127.0.0.1:6432", "listen: run/p.sock"), `6:5: listeners[0].listen: "run/p.sock" is no socket: a socket's path begins with /`},
		"control scheme": {change("control: postgres:", "control: redis:"), `8:5: listeners[0].control: a URL of scheme "redis": must be one of postgres, postgresql`},
		"control word":   {change("control: postgres://fenceproxy@127.0.0.1:5432/postgres", "control: localhost"), "8:5: listeners[0].control: is not a URL: it must begin with postgres://"},
		"bad URL":        {change("fenceproxy@", "fence:hunter2%zz@"), "8:5: listeners[0].control: is not a URL (percent-encode special characters of the password, or let ${NAME} do it)"},
		"no control":     {change("    control: postgres://fenceproxy@127.0.0.1:5432/postgres\n", ""), "5:5: listeners[0].control: missing: the URL of the control connection (or control_file)"},
		"backend scheme": {change("redis://127", "rediss3://127"), `3:3: elections.backend: a URL of scheme "rediss3": must be one of redis, rediss, valkey, valkeys, unix, redis+cluster, rediss+cluster, valkey+cluster, valkeys+cluster, redis+sentinel, rediss+sentinel, valkey+sentinel, valkeys+sentinel, postgres, postgresql, zookeeper, kubernetes (did you mean rediss?)`},
		"kube slashes":   {change("redis://127.0.0.1:6379", "kubernetes://namespace"), "3:3: elections.backend: must be written with three slashes, as kubernetes:///namespace"},
		"zk no host":     {change("redis://127.0.0.1:6379", "zookeeper://h1:2181,,h3/x"), "3:3: elections.backend: names no host"},
		"cluster nobody": {change("redis://127.0.0.1:6379", "redis+cluster://u:p@/0"), "3:3: elections.backend: names no host"},
		"memory":         {change("redis://127.0.0.1:6379", "memory://"), "3:3: elections.backend: memory elections live in one process: a proxy that kept them could never be asked for a token by anyone"},
		"no backend":     {change("  backend: redis://127.0.0.1:6379\n", "  {}\n"), "2:1: elections.backend: missing: the election backend's URL, for instance redis://localhost:6379 (or backend_file)"},
		"both":           {change("  backend:", "  backend_file: x\n  backend:"), "3:3: elections.backend_file: given together with backend: only one of the two"},
		"no such file":   {change("backend: redis://127.0.0.1:6379", "backend_file: no-such"), "3:3: elections.backend_file: stat no-such: no such file or directory"},
		"unset variable": {change("redis://127", "redis://:${PW}@127"), "3:3: elections.backend: environment variable PW is not set"},
		"open variable":  {change("redis://127", "redis://:${PW@127"), "3:3: elections.backend: ${ without its } (write $${ for the characters themselves)"},
		"odd variable":   {change("redis://127", "redis://:${P-W}@127"), "3:3: elections.backend: ${P-W} is not the name of an environment variable"},
		"no listeners":   {good[:strings.Index(good, "listeners")], "1:1: listeners: missing: at least one address that clients connect to"},
		"zero listeners": {good[:strings.Index(good, "listeners")] + "listeners: []\n", "4:1: listeners: is an empty list: leave it out, or give at least one"},
		"not a list":     {good[:strings.Index(good, "listeners")] + "listeners: x\n", "4:1: listeners: must be a list, not a single value"},
		"anchor":         {change("protocol: postgres", "protocol: &p postgres"), "5:5: listeners[0].protocol: must be a text, not an anchor or alias (not supported)"},
		"tag":            {change("protocol: postgres", "protocol: !!str postgres"), "5:5: listeners[0].protocol: must be a text, not a tagged value (not supported)"},
		"merge":          {change(protocol, protocol+"    <<: {a: b}\n"), "6:5: listeners[0].<<: merge keys are not supported"},
		"election id":    {change(listen, listen+"    election: -x\n"), `7:5: listeners[0].election: invalid election id "-x": character 1 must be a letter, a digit or, after the first, one of . _ - : /`},
		"not among":      {change(listen, listen+"    election: a\n    elections: [b, c/*]\n"), `7:5: listeners[0].election: "a" is not among the listener's elections`},
		"pattern":        {change(listen, listen+"    elections: [a*b]\n"), `7:17: listeners[0].elections[0]: invalid election id "a*b": character 2 must be a letter, a digit or, after the first, one of . _ - : / (a * may stand at the end only)`},
		"pattern twice":  {change(listen, listen+"    elections: [a, a]\n"), `7:20: listeners[0].elections[1]: "a" is given twice`},
		"nodes":          {change(listen, listen+"    nodes: [h:1]\n"), "7:5: listeners[0].nodes: is for redis and valkey only"},
		"prepared":       {change(listen, listen+"    prepared_transactions: perhaps\n"), `7:5: listeners[0].prepared_transactions: "perhaps" is not one of refuse, allow`},
		"replication":    {change(listen, listen+"    replication: write\n"), `7:5: listeners[0].replication: "write" is not one of refuse, read`},
		"max_conns":      {change(listen, listen+"    max_conns: lots\n"), `7:5: listeners[0].max_conns: "lots" is not a whole number`},
		"max_conns 0":    {change(listen, listen+"    max_conns: 0\n"), "7:5: listeners[0].max_conns: 0 is out of range: 1 to 1000000"},
		"tls, no key":    {good + "    tls: {cert: a}\n", "9:5: listeners[0].tls: the TLS options do not fit together: a certificate and its key are needed"},
		"tls, no ca":     {good + "    tls: {cert: a, key: b, client_certs: request}\n", "9:5: listeners[0].tls: the TLS options do not fit together: client certificates need the authorities that sign them: set client_ca"},
		"tls, user":      {good + "    tls: {cert: a, key: b, client_ca: c, client_certs: request, client_user: cn}\n", "9:5: listeners[0].tls: the TLS options do not fit together: users are told by certificate only where that is required"},
		"tls, unknown":   {good + "    tls: {certificate: a, key: b}\n", "9:5: listeners[0].tls: the TLS options do not fit together: a certificate and its key are needed\n9:11: listeners[0].tls.certificate: unknown key: the keys here are cert, key, client_ca, required, client_certs, client_user"},
		"mode":           {good + "    upstream_tls: {mode: verify}\n", `9:20: listeners[0].upstream_tls.mode: "verify" is not one of disable, allow, prefer, require, verify-ca, verify-full`},
		"mode with ca":   {good + "    upstream_tls: {mode: prefer, ca: x}\n", "9:5: listeners[0].upstream_tls: the TLS options do not fit together: mode prefer verifies nothing: authorities are for require, verify-ca and verify-full"},
		"verify-ca":      {good + "    upstream_tls: {mode: verify-ca}\n", "9:5: listeners[0].upstream_tls: the TLS options do not fit together: verify-ca needs the authorities to trust"},
		"system":         {good + "    upstream_tls: {mode: verify-ca, ca: system}\n", "9:5: listeners[0].upstream_tls: the TLS options do not fit together: anybody may have a certificate of the system's authorities: trusting them takes verify-full"},
		"scram":          {good + "    scram_verifiers: file\n", `9:5: listeners[0].scram_verifiers: "file" is not one of none, control`},
		"half a pair":    {good + "    upstream_tls: {mode: require, key: x}\n", "9:5: listeners[0].upstream_tls: the TLS options do not fit together: a certificate and its key belong together"},
		"server_name":    {good + "    upstream_tls: {mode: require, server_name: x}\n", "9:5: listeners[0].upstream_tls: the TLS options do not fit together: mode require does not look at the server's name: that takes verify-full"},
		"socket, tls":    {change("127.0.0.1:6432", "/run/x:6432") + "    tls: {cert: a, key: b}\n", "9:5: listeners[0].tls: there is no TLS on Unix sockets"},
		"socket, up tls": {change("upstream: 127.0.0.1:5432", "upstream: unix:/run/x/s") + "    upstream_tls: {mode: require}\n", "9:5: listeners[0].upstream_tls: there is no TLS on Unix sockets"},
		"socket, far":    {change("127.0.0.1:6432", "/"+strings.Repeat("x", 107)), "6:5: listeners[0].listen: /" + strings.Repeat("x", 107) + " is longer than the 107 bytes that the name of a socket may have"},
		"socket, name":   {change("127.0.0.1:6432", "unix:run/x"), `6:5: listeners[0].listen: "unix:run/x" is no socket: a Unix socket is named by its whole path, as unix:/run/fenceproxy:6432`},
		"socket mode":    {change("127.0.0.1:6432", "/run/x") + "    socket_mode: 9\n", `9:5: listeners[0].socket_mode: "9" is not a mode in octal digits, such as 0770`},
		"no socket":      {good + "    socket_mode: 0770\n", "9:5: listeners[0].socket_mode: is for Unix sockets, and the listener is none"},
		"name":           {change(listen, listen+"    name: a b\n"), "7:5: listeners[0].name: must not hold spaces"},
		"duration":       {good + "drain: 5\n", `9:1: drain: "5" is not a length of time such as 500ms, 2s or 1m`},
		"loops":          {good + "loops: many\n", `9:1: loops: "many" is neither auto, off nor a number`},
		"loops 0":        {good + "loops: 0\n", "9:1: loops: 0 is out of range: 1 to 64"},
		"long duration":  {good + "drain: 2h\n", "9:1: drain: 2h is out of range: 0s to 1h0m0s"},
		"permit":         {good + "guard:\n  validate_every: 9s\n", "9:1: guard: validate_every (9s) must be at most half of permit (5s), so that a permit outlives one question that went unanswered"},
		"negative":       {good + "guard:\n  timeout: -1s\n", "10:3: guard.timeout: -1s is out of range: 10ms to 1h0m0s"},
		"log level":      {good + "log:\n  level: inof\n", `10:3: log.level: "inof" is not one of debug, info, warn, error (did you mean info?)`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(c.file), env(nil))
			var m Mistakes
			if !errors.As(err, &m) {
				t.Fatalf("got %v", err)
			}
			want := "f.yaml:" + strings.ReplaceAll(c.want, "\n", "\nf.yaml:")
			if got := err.Error(); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestMistakesOfSyntax(t *testing.T) {
	for _, c := range []struct{ file, at string }{
		{"a: [1\n", "f.yaml:1:4: not valid YAML: "},
		{"elections:\n\tbackend: x\n", "f.yaml:2:"},
		{"a: b: c\n", "f.yaml:1:"},
		{"a: 'x\n", "f.yaml:1:"},
		{"%YAML\n", "f.yaml:1:"},
	} {
		_, err := Parse("f.yaml", []byte(c.file), env(nil))
		if err == nil || !strings.HasPrefix(err.Error(), c.at) {
			t.Errorf("%q: got %v, want %s...", c.file, err, c.at)
		}
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Parse("f.yaml", []byte(`
elections: {backend: "http://x"}
listeners:
  - {protocol: mysql, listen: x, upstream: y, control: "z://"}
  - {protocol: redis, listen: ":1", upstream: "h:1", control: "redis://h", name: a}
  - {protocol: redis, listen: ":1", upstream: "h:1", control: "redis://h", name: a}
log: {level: 3}
`), env(nil))
	var m Mistakes
	if !errors.As(err, &m) {
		t.Fatal(err)
	}
	var keys []string
	for _, mistake := range m {
		keys = append(keys, fmt.Sprintf("%d:%s", mistake.Pos.Line, mistake.Key))
	}
	want := "2:elections.backend 4:listeners[0].protocol 4:listeners[0].listen 4:listeners[0].upstream 6:listeners[2].listen 6:listeners[2].name 7:log.level"
	if got := strings.Join(keys, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestPasswordsFromOutside(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.yaml")
	if err := os.WriteFile(filepath.Join(dir, "control"), []byte("postgres://u:p4ss@h:1/d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(good, "redis://127.0.0.1:6379", "redis://:${PW}@${HOST}:6379/$${x", 1)
	text = strings.Replace(text, "control: postgres://fenceproxy@127.0.0.1:5432/postgres", "control_file: control", 1)
	c, err := Parse(file, []byte(text), env(map[string]string{"PW": "a b/@:?%+", "HOST": "db"}))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Elections.Backend.Reveal(), "redis://:a%20b%2F%40%3A%3F%25%2B@db:6379/${x"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := c.Listeners[0].Control.Reveal(), "postgres://u:p4ss@h:1/d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	j, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{string(j), fmt.Sprint(c), fmt.Sprintf("%+v %#v %v %s", c, c, *c, c.Elections.Backend)} {
		if strings.Contains(printed, "p4ss") || strings.Contains(printed, "a%20b") {
			t.Errorf("a password in %s", printed)
		}
	}
	for url, want := range map[string]string{
		"redis+sentinel://u:hunter2@a:1,b:2/0?master_name=m": "redis+sentinel://u:xxxxx@a:1,b:2/0?master_name=m",
		"redis+cluster://a:1,b:2":                            "redis+cluster://a:1,b:2",
		"redis+cluster://u:hun/ter2@a:1,b:2":                 "[unreadable URL]",
	} {
		if got := NewSecret(url).String(); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if got := NewSecret("postgres://u@h/d?password=p4ss&sslmode=disable").String(); got != "postgres://u@h/d?password=xxxxx&sslmode=disable" {
		t.Error(got)
	}
}

func TestNoMistakeShowsAPassword(t *testing.T) {
	for _, url := range []string{"postgres://u:hunter2@/d", "http://u:hunter2@h", "postgres://u:hunter2@h:port/d", "://u:hunter2@h", "postgres://u:hunter2@h/%zz"} {
		_, err := Parse("f.yaml", []byte(strings.Replace(good, "postgres://fenceproxy@127.0.0.1:5432/postgres", url, 1)), env(nil))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestServes(t *testing.T) {
	for _, c := range []struct {
		l    Listener
		id   string
		want bool
	}{
		{Listener{}, "a", true},
		{Listener{Election: "a"}, "a", true},
		{Listener{Election: "a"}, "ab", false},
		{Listener{Elections: []string{"a", "b/*"}}, "b/c", true},
		{Listener{Elections: []string{"a", "b/*"}}, "b", false},
		{Listener{Elections: []string{"a", "b/*"}}, "ab", false},
		{Listener{Elections: []string{"*"}}, "x", true},
	} {
		if got := c.l.Serves(c.id); got != c.want {
			t.Errorf("%+v serves %s: %v", c.l, c.id, got)
		}
	}
}

// FuzzParse: no file makes the reader panic, and what it accepts is complete.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]\n<<: *a\n? [x]: y\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f.yaml", text, env(nil))
		if err == nil && (c.Elections.Backend.IsZero() || len(c.Listeners) == 0) {
			t.Errorf("accepted %q", text)
		}
	})
}

// TestTheExampleLoads: the commented example is a configuration, its comments about
// defaults are true, and it shows every key.
func TestTheExampleLoads(t *testing.T) {
	file := filepath.Join("..", "..", "examples", "fenceproxy.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(file, text, env(map[string]string{"REDIS_PASSWORD": "p", "FENCE_PASSWORD": "p", "FENCEPROXY_ADMIN_TOKEN": "0123456789abcdef", "FENCEPROXY_ELECTION_TOKEN": "0123456789abcdef"}))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse("f.yaml", []byte(good), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	if c.Guard != d.Guard || c.Log != d.Log || c.Drain != d.Drain || c.Listeners[0].MaxConns != d.Listeners[0].MaxConns ||
		c.Listeners[0].KeepAlive != d.Listeners[0].KeepAlive || c.Listeners[0].TargetSessionAttrs != "" || c.Listeners[0].LoadBalanceHosts ||
		c.Listeners[0].Limits != (Limits{Pending: protocols.DefaultMaxConns / 2, Buffer: pg.DefaultBuffer, Inspect: pg.DefaultMaxInspect}) ||
		c.Listeners[0].Timeouts != (Timeouts{pg.DefaultStartupTimeout, pg.DefaultLoginTimeout, pg.DefaultDialTimeout, pg.DefaultAdmitTimeout, 0, 0}) {
		t.Error("the example's values are not the defaults")
	}
	for _, key := range []string{
		"elections", "backend", "backend_file", "guard", "validate_every", "permit", "timeout", "advance_timeout",
		"listeners", "name", "protocol", "listen", "upstream", "control", "election", "elections", "max_conns", "nodes", "publish", "prepared_transactions", "replication",
		"socket_mode", "tls", "cert", "key", "required", "client_ca", "client_certs", "client_user", "upstream_tls", "mode", "ca", "server_name", "scram_verifiers", "scram_userlist",
		"target_session_attrs", "load_balance_hosts", "limits", "pending", "per_address", "buffer", "inspect", "timeouts", "startup", "login", "connect",
		"admit", "idle", "idle_in_transaction", "keepalive", "interval", "count", "proxy_protocol", "trusted",
		"admin", "token",
		"log", "level", "format", "drain", "loops",
	} {
		if !strings.Contains(string(text), key+":") {
			t.Errorf("the example does not show %s", key)
		}
	}
}

// What the keys of several servers, of limits and of the network come to.
func TestLimits(t *testing.T) {
	c, err := Parse("f.yaml", []byte(strings.Replace(good, "127.0.0.1:5432\n    control: postgres://fenceproxy@127.0.0.1:5432", "[a:1, b:2]\n    control: postgres://fenceproxy@a:1,b:2", 1)+
		"    target_session_attrs: read-write\n    load_balance_hosts: random\n    limits: {pending: 3, per_address: 4, buffer: 4096, inspect: 2048}\n"+
		"    timeouts: {startup: 1s, login: 2s, connect: 3s, admit: 4s, idle: 5s, idle_in_transaction: 6s}\n    keepalive: {interval: 7s, count: 8}\n"+
		"    proxy_protocol: v2\n    trusted: [10.0.0.0/8, \"::1\"]\n"), env(nil))
	if err != nil {
		t.Fatal(err)
	}
	l := c.Listeners[0]
	if l.Upstream != "a:1,b:2" || strings.Join(l.Upstreams, " ") != "a:1 b:2" || l.TargetSessionAttrs != pg.ReadWriteSession || !l.LoadBalanceHosts || !l.Several() {
		t.Errorf("%+v", l)
	}
	if l.Limits != (Limits{3, 4, 4096, 2048}) || l.Timeouts != (Timeouts{1e9, 2e9, 3e9, 4e9, 5e9, 6e9}) {
		t.Errorf("%+v %+v", l.Limits, l.Timeouts)
	}
	if k := l.KeepAlive; k.Idle != 30*time.Second || k.Interval != 7*time.Second || k.Count != 8 || !k.Enable {
		t.Errorf("%+v", k)
	}
	if fmt.Sprint(l.ProxyProtocol.Trusted) != "[10.0.0.0/8 ::1/128]" {
		t.Errorf("%+v", l.ProxyProtocol)
	}
	for text, want := range map[string]string{
		"    proxy_protocol: v2\n":                            "needs trusted",
		"    trusted: [10.0.0.0/8]\n":                         "is for proxy_protocol: v2",
		"    proxy_protocol: v2\n    trusted: [10.0.0.1/8]\n": "did you mean 10.0.0.0/8?",
		"    proxy_protocol: v2\n    trusted: [balancer]\n":   "is not a network",
		"    proxy_protocol: v2\n    trusted: []\n":           "is an empty list",
		"    proxy_protocol: on\n":                            "is not one of off, v2",
		"    target_session_attrs: master\n":                  "is not one of any,",
		"    limits: {pending: 0}\n":                          "out of range: 1",
		"    limits: {pendng: 1}\n":                           "did you mean pending?",
		"    timeouts: {startup: 0s}\n":                       "out of range",
		"    keepalive: {idle: 10ms}\n":                       "out of range",
	} {
		if _, err := Parse("f.yaml", []byte(good+text), env(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for old, new := range map[string]string{
		"upstream: 127.0.0.1:5432": "upstream: [a:1, a:1]",
		"127.0.0.1:5432\n":         "\"a:1,b:2\"\n",
		"protocol: postgres":       "protocol: redis\n    limits: {inspect: 1024}",
	} {
		if _, err := Parse("f.yaml", []byte(strings.Replace(good, old, new, 1)), env(nil)); err == nil {
			t.Errorf("accepted %s", new)
		}
	}
}

// What the keys for TLS and Unix sockets come to.
func TestEncryption(t *testing.T) {
	listener := func(text string) Listener {
		t.Helper()
		c, err := Parse("/etc/f.yaml", []byte(text), env(nil))
		if err != nil {
			t.Fatal(err)
		}
		return c.Listeners[0]
	}
	l := listener(good)
	if l.TLS != nil || l.UpstreamTLS.Mode != "prefer" || l.SocketMode != 0o777 {
		t.Errorf("%+v %+v %v", l.TLS, l.UpstreamTLS, l.SocketMode)
	}
	l = listener(good + "    tls: {cert: a, key: /b}\n    upstream_tls: {mode: verify-full, cert: c, key: d, ca: system, server_name: n}\n")
	if o := l.TLS; o.Cert != "/etc/a" || o.Key != "/b" || !o.Required || o.ClientCerts != "none" || o.ClientUser || len(o.Protocols) != 1 {
		t.Errorf("%+v", o)
	}
	if l.ScramVerifiers || l.ScramUserlist != "" {
		t.Errorf("%+v", l)
	}
	if l := listener(good + "    scram_verifiers: control\n    scram_userlist: list\n"); !l.ScramVerifiers || l.ScramUserlist != "/etc/list" {
		t.Errorf("%+v", l)
	}
	if o := l.UpstreamTLS; o.Mode != "verify-full" || o.Cert != "/etc/c" || o.Key != "/etc/d" || o.CA != "system" || o.ServerName != "n" {
		t.Errorf("%+v", o)
	}
	l = listener(good + "    tls: {cert: a, key: /b, required: false, client_ca: ca, client_user: cn}\n    upstream_tls: {mode: verify-ca, ca: x}\n")
	if o := l.TLS; o.Required || o.ClientCA != "/etc/ca" || o.ClientCerts != "require" || !o.ClientUser || l.UpstreamTLS.CA != "/etc/x" {
		t.Errorf("%+v", o)
	}
	l = listener(strings.NewReplacer("127.0.0.1:6432", "unix:/run/fp:6432", "upstream: 127.0.0.1:5432", "upstream: /run/pg",
		"postgres://fenceproxy@127.0.0.1:5432/postgres", "postgres://fenceproxy@/postgres?host=/run/pg").Replace(good) + "    socket_mode: 0660\n")
	if l.Listen != "unix:/run/fp:6432" || l.Upstream != "/run/pg" || l.SocketMode != 0o660 {
		t.Errorf("%+v", l)
	}
}

// Every kind of election backend can be named.
func TestElectionBackends(t *testing.T) {
	for _, u := range []string{
		"redis://u:p@h:1/2", "rediss://h", "unix:///run/redis.sock", "unix://u:p@/run/redis.sock?db=2", "valkey://h", "valkeys://h", "redis+cluster://u:p@h1:1,h2:2", "valkey+sentinel://h1:1,h2/0?master_name=m",
		"postgres://u@h/d", "postgresql://h/d", "zookeeper://h1:2181,h2:2181,h3/chroot?session-timeout=20s", "zookeeper://u:p@h",
		"kubernetes:///", "kubernetes:///namespace?kubeconfig=/etc/kubeconfig&context=c",
	} {
		c, err := Parse("f.yaml", []byte(strings.Replace(good, "redis://127.0.0.1:6379", u, 1)), nil)
		if err != nil || c.Elections.Backend.Reveal() != u {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// Upstream and control of a group of Redis servers name the same kind of group.
func TestGroups(t *testing.T) {
	file := func(upstream, control string) string {
		return fmt.Sprintf("elections: {backend: \"redis://h\"}\nlisteners:\n  - protocol: valkey\n    listen: :1\n    upstream: %q\n    control: %q\n", upstream, control)
	}
	for name, c := range map[string]struct {
		upstream, control string
		group             Group
		want              string // without f.yaml:
	}{
		"sentinel": {"redis+sentinel://s1,s2:3?master_name=main", "valkeys+sentinel://u:p@s1/1?master_name=main", Sentinel, ""},
		"cluster":  {"valkey+cluster://n1:1,n2", "redis+cluster://u:p@n1", Cluster, ""},
		"one":      {"h:1", "redis://h", NoGroup, ""},
		"a user":   {"redis+cluster://u@n", "redis+cluster://n", NoGroup, "5:5: listeners[0].upstream: holds a user: that belongs into control; here, clients bring their own"},
		"no name":  {"redis+sentinel://s", "redis+sentinel://s?master_name=m", NoGroup, "5:5: listeners[0].upstream: invalid connection string: the parameter master_name is missing"},
		"TLS":      {"rediss+cluster://n", "rediss+cluster://n", NoGroup, "5:5: listeners[0].upstream: TLS with the servers is said by upstream_tls, and here by redis+cluster://"},
		"plain":    {"redis://n", "redis://n", NoGroup, "5:5: listeners[0].upstream: must be host:port of one server, or a URL that begins with redis+sentinel:// or redis+cluster://"},
		"differ":   {"redis+cluster://n", "redis+sentinel://n?master_name=m", NoGroup, "6:5: listeners[0].control: leads to what begins with redis+sentinel://, and upstream does not"},
		"one of":   {"redis+cluster://n", "redis://n", NoGroup, "6:5: listeners[0].control: must begin with redis+cluster://, as upstream does"},
		"but one":  {"n:1", "redis+cluster://n", NoGroup, "6:5: listeners[0].control: leads to what begins with redis+cluster://, and upstream does not"},
		"password": {"redis+cluster://n", "redis+cluster://u:hunter2@n:x", NoGroup, "6:5: listeners[0].control: invalid connection string"},
	} {
		t.Run(name, func(t *testing.T) {
			text := file(c.upstream, c.control)
			if strings.Contains(c.upstream, "+cluster") {
				text += "    cluster: {ports: 7001-7003}\n"
			}
			cfg, err := Parse("f.yaml", []byte(text), env(nil))
			if c.want == "" {
				if err != nil || cfg.Listeners[0].Group != c.group || cfg.Listeners[0].Upstream != c.upstream {
					t.Errorf("got %+v, %v", cfg, err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), "f.yaml:", ""), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// A listener for Redis or Valkey has the same legs as one for Postgres, but for what Redis
// does not know.
func TestLegsOfRedis(t *testing.T) {
	const base = "elections: {backend: \"redis://h\"}\nlisteners:\n  - protocol: redis\n    listen: %s\n    upstream: %s\n    control: \"%s\"\n"
	parse := func(listen, upstream, control, more string) (*Config, error) {
		return Parse("/etc/f.yaml", fmt.Appendf(nil, base+more, listen, upstream, control), env(nil))
	}
	c, err := parse(":1", "h:1", "rediss://h", "    tls: {cert: a, key: b, client_ca: ca}\n    upstream_tls: {mode: verify-full, ca: x, server_name: n}\n"+
		"    limits: {pending: 3, per_address: 4, buffer: 4096}\n    timeouts: {startup: 1s, connect: 3s, admit: 4s, idle: 5s}\n    keepalive: {interval: 7s, count: 8}\n"+
		"    proxy_protocol: v2\n    trusted: [10.0.0.0/8]\n")
	if err != nil {
		t.Fatal(err)
	}
	l := c.Listeners[0]
	if l.TLS.Cert != "/etc/a" || l.TLS.ClientCerts != "require" || l.TLS.Protocols != nil || l.UpstreamTLS.CA != "/etc/x" || l.UpstreamTLS.Protocols != nil {
		t.Errorf("%+v %+v", l.TLS, l.UpstreamTLS)
	}
	if l.Limits != (Limits{3, 4, 4096, 0}) || l.Timeouts != (Timeouts{Startup: 1e9, Connect: 3e9, Admit: 4e9, Idle: 5e9}) || l.KeepAlive.Count != 8 || l.ProxyProtocol == nil {
		t.Errorf("%+v", l)
	}
	c, err = parse("/run/fp.sock", "unix:/run/redis:6379", "unix://u:p@/run/redis:6379?db=1", "    socket_mode: 0700\n")
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Listeners[0]; l.Listen != "/run/fp.sock" || l.Upstream != "unix:/run/redis:6379" || l.SocketMode != 0o700 || l.UpstreamTLS.Mode != "disable" {
		t.Errorf("%+v", l)
	}
	if path, ok := c.Listeners[0].Protocol.SocketPath(c.Listeners[0].Upstream); !ok || path != "/run/redis:6379" {
		t.Error(path)
	}
	for more, want := range map[string]string{
		"    tls: {cert: a, key: b, required: false}\n":                                     "tls.required: a listener for redis takes clients either with TLS or without",
		"    tls: {cert: a, key: b, client_ca: c, client_user: cn}\n":                       "tls.client_user: is for postgres only",
		"    upstream_tls: {mode: prefer}\n":                                                "upstream_tls.mode: prefer means nothing for redis",
		"    limits: {inspect: 2048}\n":                                                     "limits.inspect: is for postgres only",
		"    timeouts: {login: 1s}\n":                                                       "timeouts.login: is for postgres only",
		"    target_session_attrs: any\n":                                                   "is for postgres only",
		"    timeouts: {idle_in_transaction: 1s}\n    limits: {inspect: 2048, pendng: 1}\n": "did you mean pending?",
	} {
		if _, err := parse(":1", "h:1", "redis://h", more); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
	for _, control := range []string{"unix://host/path", "unix://", "postgres://h"} {
		if _, err := parse(":1", "h:1", control, ""); err == nil {
			t.Errorf("accepted %s", control)
		}
	}
	for _, more := range []string{"upstream_tls: {mode: require}", "timeouts: {idle: 1s}"} {
		if _, err := parse(":1", "/run/redis.sock", "redis://h", "    "+more+"\n"); err == nil {
			t.Errorf("accepted on a socket: %s", more)
		}
	}
}
