package electionapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/election/memory"
	"github.com/fenceproxy/fenceproxy/internal/admin"
	"github.com/fenceproxy/fenceproxy/internal/testenv"
	"github.com/fenceproxy/fenceproxy/protocols/resp"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A faulty backend fails as it is told to.
type faulty struct {
	election.Backend
	err error
}

func (f *faulty) Acquire(ctx context.Context, id string, o election.AcquireOptions) (election.AcquireResult, error) {
	if f.err != nil {
		return election.AcquireResult{}, f.err
	}
	return f.Backend.Acquire(ctx, id, o)
}

func (f *faulty) Resign(ctx context.Context, id string, t election.Token, o election.ResignOptions) (election.ResignResult, error) {
	if f.err != nil {
		return election.ResignResult{}, f.err
	}
	return f.Backend.Resign(ctx, id, t, o)
}

func (f *faulty) Status(ctx context.Context, id string) (election.StatusResult, error) {
	if f.err != nil {
		return election.StatusResult{}, f.err
	}
	return f.Backend.Status(ctx, id)
}

// faces are the two ways to ask one service: each takes the call, the election and the
// arguments as pairs, and returns the answer's fields, or the code of the error.
type face struct {
	name string
	ask  func(t *testing.T, call, id string, args ...string) (map[string]any, Code)
}

func faces(t *testing.T, s *Service) []face {
	t.Helper()
	talk := s.RESP(Clients{Loopback: true}).Begin(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}).(*conversation)
	return []face{{"http", newHTTP(t, s).ask}, {"resp", func(_ *testing.T, call, id string, args ...string) (map[string]any, Code) {
		return respAsk(talk, call, id, args...)
	}}}
}

// newHTTP serves s on an admin listener.
func newHTTP(t *testing.T, s *Service) *httpFace {
	t.Helper()
	adm := admin.New(admin.Config{})
	for _, r := range s.Routes() {
		adm.API(r.Pattern, r.Handler)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- adm.Serve(ctx, l) }()
	tr := new(http.Transport)
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &httpFace{url: "http://" + l.Addr().String(), c: &http.Client{Transport: tr}, stop: stop}
}

type httpFace struct {
	url  string
	c    *http.Client
	stop context.CancelFunc
}

var bodyFields = map[string]string{"owner": "owner", "ttl": "ttl_ms", "token": "token", "minfencing": "min_fencing", "holdoff": "hold_off_ms"}

func (h *httpFace) ask(t *testing.T, call, id string, args ...string) (map[string]any, Code) {
	t.Helper()
	path := h.url + "/v1/elections/" + strings.NewReplacer("/", "%2F", "?", "%3F").Replace(id)
	method := http.MethodPost
	body := make(map[string]any)
	for i := 0; i+1 < len(args); i += 2 {
		var v any = args[i+1]
		if args[i] != "token" && args[i] != "owner" {
			v = json.Number(args[i+1])
		}
		body[bodyFields[args[i]]] = v
	}
	b, _ := json.Marshal(body)
	if call == "status" {
		method, b = http.MethodGet, nil
	} else {
		path += "/" + call
	}
	return h.do(t, method, path, b)
}

func (h *httpFace) get(t *testing.T, path string) (map[string]any, Code) {
	t.Helper()
	return h.do(t, http.MethodGet, h.url+path, nil)
}

func (h *httpFace) do(t *testing.T, method, url string, body []byte) (map[string]any, Code) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if res.StatusCode == http.StatusOK {
		m := make(map[string]any)
		if err := d.Decode(&m); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return m, ""
	}
	var e struct{ Error struct{ Code Code } }
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if p := problem(e.Error.Code); p.Status != res.StatusCode || p.retryAfter != (res.Header.Get("Retry-After") != "") {
		t.Errorf("%s came with the status %d", e.Error.Code, res.StatusCode)
	}
	return nil, e.Error.Code
}

func respAsk(talk *conversation, call, id string, args ...string) (map[string]any, Code) {
	words := [][]byte{[]byte(call), []byte(id)}
	for i := 0; i+1 < len(args); i += 2 {
		if call == "acquire" || args[i] != "token" {
			words = append(words, []byte(args[i]))
		}
		words = append(words, []byte(args[i+1]))
	}
	a, p := talk.answer(context.Background(), words, new(resp.Reply))
	if p != nil {
		return nil, p.Code
	}
	m := make(map[string]any)
	for _, f := range a {
		m[f.name] = f.value
		if t, ok := f.value.(election.Token); ok {
			m[f.name] = t.Reveal()
		}
	}
	return m, ""
}

// Both faces give the same answers, with every outcome.
func TestOutcomes(t *testing.T) {
	for _, f := range faces(t, New(memory.New(), Config{})) {
		t.Run(f.name, func(t *testing.T) {
			id := f.name + "/a:b.c-d_e"
			const own, other = "a-token-of-this-test", "another-token-of-this-test"
			ask := func(call, outcome string, args ...string) map[string]any {
				t.Helper()
				m, code := f.ask(t, call, id, args...)
				if code != "" || m["outcome"] != outcome || m["election"] != id {
					t.Fatalf("%s %q: %v %s, want %s", call, args, m, code, outcome)
				}
				return m
			}
			ask("status", "vacant")
			ask("validate", "vacant", "token", own)
			got := ask("acquire", "acquired", "owner", "me", "token", own, "ttl", "60000", "minfencing", "9007199254740993")
			if fmt.Sprint(got["number"]) != "9007199254740993" || got["token"] != own || got["owner"] != "me" || fmt.Sprint(got["remaining_ms"]) != "60000" {
				t.Errorf("%v", got)
			}
			ask("acquire", "acquired", "token", own)
			if got := ask("acquire", "busy"); got["owner"] != "me" || got["reason"] != "held" || got["token"] != nil {
				t.Errorf("%v", got)
			}
			if got := ask("status", "held"); got["owner"] != "me" || fmt.Sprint(got["number"]) != "9007199254740993" || got["token"] != nil {
				t.Errorf("%v", got)
			}
			ask("renew", "renewed", "token", own)
			ask("renew", "lost", "token", other)
			ask("validate", "current", "token", own)
			if got := ask("validate", "stale", "token", other); fmt.Sprint(got["number"]) != "9007199254740993" {
				t.Errorf("%v", got)
			}
			ask("resign", "not-owner", "token", other)
			ask("resign", "released", "token", own, "holdoff", "60000")
			if got := ask("acquire", "busy"); got["reason"] != "hold-off" || got["owner"] != nil {
				t.Errorf("%v", got)
			}
			if got := ask("status", "vacant"); fmt.Sprint(got["hold_off_ms"]) == "0" {
				t.Errorf("%v", got)
			}
			id += "2"
			got = ask("acquire", "acquired")
			if _, err := election.ParseToken(fmt.Sprint(got["token"])); err != nil || !regexp.MustCompile(`^127\.0\.0\.1-[0-9a-f]{8}$`).MatchString(fmt.Sprint(got["owner"])) {
				t.Errorf("%v", got)
			}
		})
	}
}

// Both faces refuse with the same codes; nothing of the caller's is in the words.
func TestCodes(t *testing.T) {
	const own = "a-token-of-this-test"
	b := &faulty{Backend: memory.New()}
	var log testenv.Buffer
	for _, f := range faces(t, New(b, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})) {
		for _, c := range []struct {
			want Code
			err  error
			call []string
		}{
			{InvalidElection, nil, []string{"status", "-x"}},
			{InvalidElection, nil, []string{"status", strings.Repeat("x", 129)}},
			{InvalidElection, nil, []string{"acquire", "a b?"}},
			{InvalidToken, nil, []string{"acquire", "a", "token", "short"}},
			{InvalidToken, nil, []string{"renew", "a", "token", "short"}},
			{InvalidToken, nil, []string{"validate", "a", "token", own + "\x00"}},
			{InvalidToken, nil, []string{"resign", "a", "token", strings.Repeat("x", 129)}},
			{InvalidOwner, nil, []string{"acquire", "a", "owner", "x y"}},
			{InvalidTTL, nil, []string{"acquire", "a", "ttl", "99"}},
			{InvalidTTL, nil, []string{"acquire", "a", "ttl", "-1"}},
			{InvalidTTL, nil, []string{"acquire", "a", "ttl", "86400001"}},
			{InvalidTTL, nil, []string{"acquire", "a", "ttl", "9223372036854775807"}},
			{InvalidTTL, nil, []string{"resign", "a", "token", own, "holdoff", "86400001"}},
			{InvalidFencing, nil, []string{"acquire", "a", "minfencing", "-1"}},
			{UnsupportedOption, fmt.Errorf("x: %w", election.ErrUnsupportedOption), []string{"resign", "a", "token", own, "holdoff", "1"}},
			{NumbersExhausted, election.ErrNumbersExhausted, []string{"acquire", "a"}},
			{Corrupt, fmt.Errorf("secret-host: %w", election.ErrCorrupt), []string{"status", "a"}},
			{Unavailable, errors.New("secret-host"), []string{"acquire", "a"}},
			{Unavailable, election.ErrClosed, []string{"status", "a"}},
			{Unavailable, context.DeadlineExceeded, []string{"status", "a"}},
		} {
			b.err = c.err
			if m, code := f.ask(t, c.call[0], c.call[1], c.call[2:]...); code != c.want || m != nil {
				t.Errorf("%s: %.80q with %v: %v %s, want %s", f.name, c.call, c.err, m, code, c.want)
			}
		}
	}
	if !strings.Contains(log.String(), "secret-host") {
		t.Errorf("the operator is not told: %s", log.String())
	}
	for _, m := range Meanings {
		if strings.Contains(m.Message+m.Hint, "secret") {
			t.Errorf("%+v", m)
		}
	}
}

// The document's table of codes is the code's.
func TestDocumentedCodes(t *testing.T) {
	text, err := os.ReadFile("../../docs/elections/api.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([A-Z]+)` \\| ([0-9]{3}|) *\\| (.*) \\|$").FindAllStringSubmatch(string(text), -1)
	var got, want []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r[1:4]))
	}
	for _, m := range Meanings {
		status := ""
		if m.Status != 0 {
			status = fmt.Sprint(m.Status)
		}
		want = append(want, fmt.Sprint([]string{string(m.Code), m.Code.Word(), status}))
		if p := problem(m.Code); p.Code != m.Code || p.Message == "" {
			t.Errorf("%s: %+v", m.Code, p)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("documented:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Only clients at an allowed address, or with the token, are answered.
func TestWhoMay(t *testing.T) {
	const token = "the-token-of-the-listener"
	s := New(memory.New(), Config{})
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip)} }
	for _, c := range []struct {
		c       Clients
		from    net.Addr
		allowed bool
	}{
		{Clients{Loopback: true}, at("127.0.0.1"), true},
		{Clients{Loopback: true}, at("::1"), true},
		{Clients{Loopback: true}, at("::ffff:127.0.0.1"), true},
		{Clients{Loopback: true}, &net.UnixAddr{}, true},
		{Clients{Loopback: true}, at("192.0.2.1"), false},
		{Clients{Loopback: true}, nil, false},
		{Clients{Token: token}, at("127.0.0.1"), false},
		{Clients{Token: token}, &net.UnixAddr{}, false},
		{Clients{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, at("192.0.2.1"), true},
		{Clients{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, at("::ffff:192.0.2.1"), true},
		{Clients{Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, at("127.0.0.1"), false},
	} {
		talk := s.RESP(c.c).Begin(c.from).(*conversation)
		want := Code("")
		switch {
		case !c.allowed && c.c.Token != "":
			want = Unauthenticated
		case !c.allowed:
			want = Forbidden
		}
		for _, call := range [][]string{{"status", "a"}, {"acquire", "a", "token", "a-token-of-this-test"}, {"watch", "a", "timeout", "0"}} {
			if m, code := respAsk(talk, call[0], call[1], call[2:]...); code != want || (m == nil) != (want != "") {
				t.Errorf("%+v from %v, %q: %v %q, want %q", c.c, c.from, call, m, code, want)
			}
		}
		for _, wrong := range []string{"", "x", token + "x", "set"} {
			if err := talk.authenticate([][]byte{[]byte(wrong)}, new(resp.Reply)); err == nil || err.Code != Unauthenticated {
				t.Errorf("%q: %v", wrong, err)
			}
		}
		if _, code := respAsk(talk, "status", "a"); code != want {
			t.Errorf("after wrong tokens: %q, want %q", code, want)
		}
		if err := talk.authenticate([][]byte{[]byte(token)}, new(resp.Reply)); (err == nil) != (c.c.Token != "") {
			t.Errorf("the token: %v", err)
		}
		if _, code := respAsk(talk, "status", "a"); code != "" && c.c.Token != "" {
			t.Errorf("with the token: %q", code)
		}
	}
	talk := s.RESP(Clients{Loopback: true, Serves: func(id string) bool { return id == "a" }}).Begin(at("127.0.0.1")).(*conversation)
	if _, code := respAsk(talk, "status", "b"); code != NotServed {
		t.Error(code)
	}
}

// What is wrong with a command is an invalid argument, and nothing is done.
func TestArguments(t *testing.T) {
	s := New(memory.New(), Config{})
	talk := s.RESP(Clients{Loopback: true}).Begin(&net.UnixAddr{}).(*conversation)
	const own = "a-token-of-this-test"
	for _, line := range []string{
		"", "nothing", "acquire", "acquire a ttl", "acquire a ttl x", "acquire a ttl 1s", "acquire a ttl 1000 TTL 1000", "acquire a x y", "acquire a ttl 99999999999999999999",
		"renew a", "renew a " + own + " ttl 1000", "resign a " + own + " holdoff", "resign a " + own + " x 1", "validate a " + own + " " + own, "status", "status a b",
		"watch", "watch a x", "watch a -1", "watch a 1 timeout", "watch a timeout x", "watch a timeout -1", "watch a 1 2", "auth", "auth a b",
	} {
		if a, p := talk.answer(t.Context(), bytes.Fields([]byte(line)), new(resp.Reply)); p == nil || p.Code != InvalidArgument {
			t.Errorf("%q: %v %v", line, a, p)
		}
	}
	for line, want := range map[string]string{
		"renew a": "ELECTION RENEW <election> <token>", "acquire a ttl 1s": "TTL must be a whole number, of milliseconds (100 to 86400000)",
		"acquire a ttl 1 TTL 1": "TTL is given twice", "acquire a ttl": "TTL has no value", "acquire a " + own + " 1": "MINFENCING, OWNER, TOKEN, TTL",
		"acquire a minfencing x": "MINFENCING must be", "watch a timeout x": "TIMEOUT must be", "nothing a": "no such subcommand",
	} {
		if _, p := talk.answer(t.Context(), bytes.Fields([]byte(line)), new(resp.Reply)); p == nil || !strings.Contains(p.Message, want) || strings.Contains(p.Message+p.Hint, own) {
			t.Errorf("%q: %v", line, p)
		}
	}
	if a, p := s.status(t.Context(), "a"); p != nil || a[1].value != "vacant" {
		t.Errorf("%v %v", a, p)
	}
	h := newHTTP(t, s)
	for _, q := range []string{"number=x", "number=-1", "number=1&number=2", "timeout_ms=", "token=" + own, "a;b", "%zz"} {
		if _, code := h.get(t, "/v1/elections/a/watch?"+q); code != InvalidArgument {
			t.Errorf("%s: %s", q, code)
		}
	}
	for _, path := range []string{"/v1/elections/a/stream?number=1", "/v1/elections/a?wait=1"} {
		if _, code := h.get(t, path); code != InvalidArgument {
			t.Errorf("%s: %s", path, code)
		}
	}
}

// Whatever prints an answer shows no token.
func TestNoTokenIsPrinted(t *testing.T) {
	s := New(memory.New(), Config{})
	const own = "a-token-of-this-test"
	a, p := s.acquire(t.Context(), "a", acquisition{token: own}, &net.UnixAddr{})
	if p != nil {
		t.Fatal(p)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", a, a, a, a); strings.Contains(text, own) {
		t.Error(text)
	}
	if b, err := json.Marshal(a); err != nil || !bytes.Contains(b, []byte(`"token":"`+own+`"`)) {
		t.Errorf("%s %v", b, err)
	}
}
