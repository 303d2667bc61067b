package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// validID stands for election.CheckID, which this package does not import.
func validID(s string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`).MatchString(s) {
		return fmt.Errorf("%q is no election's name", s)
	}
	return nil
}

func newRules(t testing.TB, fallback string, rules ...Rule) *Rules {
	t.Helper()
	r, err := NewRules(rules, fallback, validID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tables(election string, patterns ...string) Rule {
	return Rule{Kind: Table, Patterns: patterns, Election: election}
}

func keys(election string, patterns ...string) Rule {
	return Rule{Kind: Key, Patterns: patterns, Election: election}
}

func access(a Access, r Rule) Rule { r.Access = a; return r }

func TestPatternMatches(t *testing.T) {
	for _, c := range []struct{ pattern, name, want string }{
		{"orders:{p}:*", "orders:7:x", "7"},
		{"orders:{p}:*", "orders:7:", "7"},
		{"orders:{p}:*", "orders:7:x:y", "7"},
		{"orders:{p}:*", "orders::x", "no"},
		{"orders:{p}:*", "orders:7", "no"},
		{"orders:{p}", "orders:7:x", "7:x"},
		{"orders:{p}", "orders:", "no"},
		{"{a}-{b}", "x-y-z", "x,y-z"},
		{"{a}-{b}-", "x-y-", "x,y"},
		{"{a}-{b}-", "x-y-z", "no"},
		{"*:{p}:end", "a:b:end", "b"},
		{"*:{p}:end", "a:b:c:end", "c"},
		{"*:{p}:*", "a:b:c:d", "b"}, // the least from the left
		{"*{p}:x", "aa:x", "aa"},
		{"*{p}:xy*z", "q:x:xyz", "x"},
		{"*a{p}:x", "ab:ac:x", "c"},
		{"*a{p}:x", "aab:x", "ab"},
		{`\{{p}\}:*`, "{7}:x", "7"},
		{`\*\?\\`, `*?\`, ""},
		{`\*`, "x", "no"},
		{"*", "", ""},
		{"*", "\x00\xff", ""},
		{"a*b*c", "abc", ""},
		{"a*b*c", "a-b-b-c", ""},
		{"a*b*c", "a-c", "no"},
		{"a*bc", "abcbcbc", ""},
		{"??", "ab", ""},
		{"??", "abc", "no"},
		{"*?", "", "no"},
		{"a**b", "ab", ""},
		{"a", "A", "no"},
		{"x*x", "x", "no"},
	} {
		p, err := parsePattern(c.pattern, true)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		var at captures
		got := "no"
		if p.match([]byte(c.name), &at) {
			var all []string
			for i := range p.captures {
				all = append(all, c.name[at[i].at:at[i].end])
			}
			got = strings.Join(all, ",")
		}
		if got != c.want {
			t.Errorf("%q on %q: got %q, want %q", c.pattern, c.name, got, c.want)
		}
	}
}

// reference is the pattern as a regular expression.
func reference(p pattern, dots bool) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for _, t := range p.tokens {
		switch t.kind {
		case oneByte:
			b.WriteString(regexp.QuoteMeta(string(t.b)))
		case anyByte:
			b.WriteString(".")
		case anyBytes:
			b.WriteString(".*?")
		case capture:
			not := ""
			if t.ends {
				not += regexp.QuoteMeta(string(t.b))
			}
			if !dots {
				not += `\.`
			}
			if not == "" {
				b.WriteString("(.+)")
			} else {
				b.WriteString("([^" + not + "]+)")
			}
		}
	}
	b.WriteString(`\z`)
	return regexp.MustCompile(b.String())
}

func randomText(r *rand.Rand, letters string, n int) string {
	var b strings.Builder
	for range r.IntN(n + 1) {
		b.WriteByte(letters[r.IntN(len(letters))])
	}
	return b.String()
}

func randomPattern(r *rand.Rand, dots bool) (p pattern) {
	for {
		text := randomText(r, "ab.:*?CD", 8)
		for i, c := range []string{"C", "D"} {
			text = strings.Replace(text, c, fmt.Sprintf("{c%d}", i), 1)
		}
		text = strings.NewReplacer("C", "a", "D", "b").Replace(text)
		var err error
		if p, err = parsePattern(text, dots); err == nil {
			return p
		}
	}
}

// Patterns match what the same regular expression does, with the same captures.
func TestPatternsAgreeWithRegexp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	matched := 0
	for range 1500 {
		dots := r.IntN(2) == 0
		p := randomPattern(r, dots)
		re := reference(p, dots)
		for range 20 {
			name := randomText(r, "ab.:", 9)
			want := re.FindStringSubmatchIndex(name)
			var at captures
			got := p.match([]byte(name), &at)
			if got != (want != nil) {
				t.Fatalf("%q on %q: %v, want %v", p.text, name, got, want)
			}
			if !got {
				continue
			}
			matched++
			for i := range p.captures {
				if at[i] != (span{want[2*i+2], want[2*i+3]}) {
					t.Fatalf("%q on %q: {%s} is %v, want %v", p.text, name, p.captures[i], at[i], want[2*i+2:2*i+4])
				}
			}
		}
	}
	if matched < 800 {
		t.Errorf("only %d matched", matched)
	}
}

// A key that is made to be slow to match is not: the times would be minutes.
func TestPatternsMatchLongKeys(t *testing.T) {
	for _, s := range []string{"*x{p}:y", "*{p}:y*{q}:z", "*ab*ab*ab*c", "*x{p}:y{q}:*z"} {
		p, err := parsePattern(s, true)
		if err != nil {
			t.Fatal(err)
		}
		var at captures
		for _, part := range []string{"x", "x:", "ab", "x:y"} {
			if p.match([]byte(strings.Repeat(part, 1<<17)), &at) {
				t.Errorf("%q matches", s)
			}
		}
	}
}

func TestPatternMistakes(t *testing.T) {
	for _, s := range []string{"", "{", "}", "a{b", "a}", "{}", "{1}", "{a}*", "{a}?", "{a}{b}", "{a}x{a}", `a\`, "{a b}", strings.Repeat("x", maxPattern+1), "{a}1{b}2{c}3{d}4{e}"} {
		if p, err := parsePattern(s, true); !errors.Is(err, ErrPattern) {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
}

func TestRuleMistakes(t *testing.T) {
	for want, r := range map[string]Rule{
		"no patterns":       {Kind: Key, Election: "a"},
		"names no election": {Kind: Key, Patterns: []string{"a"}},
		"says that none":    {Kind: Key, Patterns: []string{"a"}, Election: "a", Access: Open},
		"needs {p}":         keys("orders-{p}", "orders:{p}:*", "orders:*"),
		"is no election's":  keys("or ders", "a"),
		"not a template":    keys("orders-{", "a"),
		"is not schema.name (*.orders is it in every schema)": tables("a", "orders"),
		"captures {t} twice":   tables("a", "{t}.{t}"),
		"more than 4 captures": tables("a", "{a}1{b}2{c}.{d}1{e}"),
	} {
		var e *RuleError
		_, err := NewRules([]Rule{keys("ok", "ok"), r}, "", validID)
		if !errors.Is(err, ErrRule) || !errors.As(err, &e) || e.Rule != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func target(s string) Target {
	kind, name, _ := strings.Cut(s, " ")
	t := Target{Kind: map[string]TargetKind{"t": Table, "f": Function, "k": Key, "u": Unknown}[kind], Name: name}
	switch t.Kind {
	case Unknown:
		t.What, t.Name = name, ""
	case Table, Function:
		t.Schema, t.Name, _ = strings.Cut(name, "/")
		t.AnySchema, t.AnyName = t.Schema == "*", t.Name == "*"
	case Key:
		t.AnyName = name == "*"
	}
	return t
}

func TestRulesDecide(t *testing.T) {
	sql := []Rule{
		access(Open, tables("", "scratch.*", "*.tmp_?")),
		access(Deny, tables("", "secret.*")),
		tables("billing", "billing.*", "invoices.*"),
		tables("tenant-{t}", "tenant_{t}.*"),
		tables("shard-{n}", "shards.s{n}"),
		{Kind: Function, Patterns: []string{"billing.*"}, Election: "billing"},
		{Kind: Function, Patterns: []string{"pure.*"}, Access: Open},
	}
	redis := []Rule{keys("orders-{p}", "orders:{p}:*"), keys("b", "b:*"), access(Open, keys("", "o:*"))}
	constant := []Rule{keys("a", "a:*"), keys("b", "b:*", "c:*"), access(Open, keys("", "o:*")), keys("a", "x")}
	for _, c := range []struct {
		rules    []Rule
		fallback string
		targets  string // separated by commas
		want     string // elections, "open" or the beginning of why it is denied, and the rule
	}{
		{sql, "", "t billing/x", "billing 2"},
		{sql, "", "t billing/x,t invoices/y", "billing 2"},
		{sql, "", "t billing/x,t tenant_7/y,t tenant_8/y", "billing+tenant-7+tenant-8 2"},
		{sql, "", "t scratch/x", "open 0"},
		{sql, "", "t scratch/x,t billing/x", "billing 2"},
		{sql, "", "t billing/tmp_1", "open 0"},
		{sql, "", "t secret/x", "rule 2 (tables secret.*) denies writing table secret.x to everybody"},
		{sql, "", "t scratch/x,t secret/x", "rule 2 (tables secret.*) denies"},
		{sql, "", "t public/x", "no rule matches table public.x"},
		{sql, "rest", "t public/x", "rest -1"},
		{sql, "rest", "t public/x,t billing/x", "rest+billing -1"},
		{sql, "", "", "open -1"},
		{sql, "", "t tenant_a.b/x", "no rule"},                                   // a capture takes no dot
		{sql, "", "t tenant_ä/x", "rule 4 (tables tenant_{t}.*) makes no valid"}, // no election's name
		{sql, "", "t tenant_7/x,t tenant_7/y", "tenant-7 3"},
		{sql, "", "f billing/x", "billing 5"},
		{sql, "", "f pure/x", "open 6"},
		{sql, "", "f public/x", "it cannot be told what function public.x, which no rule of functions names, writes, and rule"},
		{sql, "", "u DO", "it cannot be told what DO writes, and rule 2 (tables secret.*) denies"},
		{sql[2:3], "", "u DO", "billing 0"},
		{sql[2:3], "rest", "u DO", "billing+rest 0"},
		{sql[2:4], "", "u DO", "it cannot be told what DO writes, and rule 2 (tables tenant_{t}.*) stands for more"},
		{sql[:1], "", "u DO", "it cannot be told what DO writes, and no rule names an election"},
		{sql[2:3], "", "f public/x", "billing 0"},
		{sql, "", "t billing/*", "billing 2"},
		{sql, "", "t tenant_7/*", "tenant-7 3"},
		{sql[4:], "", "t shards/*", "rule 1 (tables shards.s{n}) stands for more"},
		{sql[4:], "", "t */s7", "no rule matches all that table *.s7 may be"},
		{sql[4:], "rest", "t */s7", "shard-7+rest 0"},
		{sql, "rest", "t */x", "rule 2 (tables secret.*) denies"},
		{sql[2:3], "rest", "t */x", "billing+rest 0"},
		{sql[2:4], "rest", "t */x", "rule 2 (tables tenant_{t}.*) stands for more"},
		{sql, "", "t secret/*", "rule 2 (tables secret.*) denies"},
		{sql, "rest", "t elsewhere/*", "rest 0"}, // and *.tmp_? is open
		{sql, "", "t elsewhere/*", "no rule matches all"},
		{append(slices.Clone(sql[2:3]), tables("all", "*.*")), "", "t */x", "billing+all 0"},
		{redis, "", "k orders:7:x", "orders-7 0"},
		{redis, "", "k orders:7:x,k orders:8:x,k b:1", "orders-7+orders-8+b 0"},
		{redis, "", "k o:1", "open 2"},
		{redis, "", "k orders:7", "no rule matches key"},
		{redis, "", "k orders:a b:x", "rule 1 (keys orders:{p}:*) makes no valid"},
		{redis, "rest", "k orders:a b:x", "rule 1 (keys orders:{p}:*) makes no valid"},
		{redis, "", "u FLUSHALL", "it cannot be told what FLUSHALL writes, and rule"},
		{constant, "", "u FLUSHALL", "a+b 0"},
		{constant, "", "k *", "no rule matches all"},
		{constant, "rest", "k *", "a+b+rest 0"},
	} {
		r := newRules(t, c.fallback, c.rules...)
		var targets []Target
		for s := range strings.SplitSeq(c.targets, ",") {
			if s != "" {
				targets = append(targets, target(s))
			}
		}
		d := r.Decide(targets)
		got := fmt.Sprintf("%s %d", strings.Join(d.Elections, "+"), d.Rule)
		switch {
		case d.Deny:
			got = d.Why
		case d.Open:
			got = "open" + got
		}
		if got != c.want && (!d.Deny || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s with %q: got %q, want %q", c.targets, c.fallback, got, c.want)
		}
		if d.Deny && (d.Open || len(d.Elections) > 0) {
			t.Errorf("%s: denied and allowed: %+v", c.targets, d)
		}
		if n := len(r.Explain(targets)); n != len(targets) {
			t.Errorf("%d explained of %d", n, len(targets))
		}
	}
}

// A wide target needs, at least, what each of the names that it may stand for needs.
func TestWideTargetsNeedWhatTheirNamesNeed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	decided := 0
	for range 800 {
		var all []Rule
		for range 1 + r.IntN(4) {
			one := Rule{Kind: Table, Access: Access(r.IntN(3)), Patterns: []string{randomPattern(r, false).text + "." + randomPattern(r, false).text}}
			if one.Access == Fenced {
				one.Election = []string{"a", "b", "c-{c0}"}[r.IntN(3)]
			}
			if _, err := NewRules([]Rule{one}, "", validID); err == nil {
				all = append(all, one)
			}
		}
		rules := newRules(t, []string{"", "rest"}[r.IntN(2)], all...)
		for range 20 {
			wide := Target{Kind: Table, Schema: randomText(r, "ab", 3), Name: randomText(r, "ab", 3)}
			one := wide
			wide.AnySchema, wide.AnyName = r.IntN(2) == 0, r.IntN(2) == 0
			if wide.AnySchema {
				one.Schema = randomText(r, "ab", 3)
			}
			if wide.AnyName {
				one.Name = randomText(r, "ab", 3)
			}
			w, o := rules.Decide([]Target{wide}), rules.Decide([]Target{one})
			u := rules.Decide([]Target{{What: "DO"}})
			switch {
			case w.Deny:
				continue
			case o.Deny || w.Open && !o.Open:
				t.Fatalf("%v: %v is %+v, %v is %+v", all, wide, w, one, o)
			}
			decided++
			for _, e := range o.Elections {
				if !slices.Contains(w.Elections, e) {
					t.Fatalf("%v: %v is %+v, %v is %+v", all, wide, w, one, o)
				}
				if !u.Deny && !slices.Contains(u.Elections, e) {
					t.Fatalf("%v: DO is %+v, %v is %+v", all, u, one, o)
				}
			}
		}
	}
	if decided < 800 {
		t.Errorf("only %d decided", decided)
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		rules []Rule
		want  []string
	}{
		{[]Rule{keys("a", "a:*"), keys("b", "b:*")}, nil},
		{[]Rule{keys("a", "a:x"), keys("b", "a:*")}, nil}, // an exception first
		{[]Rule{keys("a", "a:*"), keys("b", "a:x")}, []string{`rule 2: pattern "a:x" never matches: rule 1 ("a:*")`}},
		{[]Rule{keys("a", "a:*"), keys("b", "a:*")}, []string{`rule 2: pattern "a:*" never matches`}},
		{[]Rule{keys("a", "a:*", "a:x")}, []string{`rule 1: pattern "a:x" never matches`}},
		{[]Rule{keys("a", "a*"), keys("b", "*z")}, []string{`rule 2: pattern "*z" and rule 1 ("a*") match some`}},
		{[]Rule{keys("a", "a*"), keys("a", "*z")}, nil},                                                    // the same election
		{[]Rule{keys("a", "a:{p}:*"), keys("b", "a:?:x")}, []string{`rule 2: pattern "a:?:x" and rule 1`}}, // a::: may be
		{[]Rule{keys("a", "a:{p}:*"), keys("b", "a:7:x")}, []string{`rule 2: pattern "a:7:x" never`}},
		{[]Rule{keys("x", "?*"), keys("y", ""+"{p}")}, []string{`rule 2: pattern "{p}" never`}},
		{[]Rule{keys("x", "a*"), keys("y", "?"), keys("z", "a"), keys("w", "b")}, []string{`rule 2: pattern "?" and rule 1`, `rule 3: pattern "a" never`, `rule 4: pattern "b" never`}},
		{[]Rule{tables("a", "a.*"), tables("b", "*.b"), tables("c", "a.c")}, []string{`rule 2: pattern "*.b" and rule 1`, `rule 3: pattern "a.c" never`}},
		{[]Rule{tables("a", "a.*"), {Kind: Function, Patterns: []string{"a.*"}, Election: "b"}}, nil},
		{[]Rule{tables("a", "{t}.*"), tables("b", "x.y"), tables("c", "*.*")}, []string{`rule 2: pattern "x.y" never`}},
		{[]Rule{keys("a", "{p}a*"), keys("b", "*"), keys("c", "?a")}, []string{`rule 3: pattern "?a" never matches: rule 2`}},
	} {
		r := newRules(t, "", c.rules...)
		got, complete := r.Overlaps()
		if len(got) != len(c.want) || !complete {
			t.Errorf("%v: got %v", c.rules, got)
			continue
		}
		for i, o := range got {
			if !strings.HasPrefix(o.Text, c.want[i]) || o.Never != strings.Contains(c.want[i], "never") {
				t.Errorf("%v: got %q, want %q", c.rules, o.Text, c.want[i])
			}
		}
	}
	// Two that take all together.
	r := newRules(t, "", keys("a", "{p}a"), keys("b", "{p}b"), keys("c", "?"), keys("d", ""+"*"), keys("e", "xa"))
	if got, _ := r.Overlaps(); len(got) == 0 || !got[len(got)-1].Never {
		t.Error(got)
	}
	r = newRules(t, "", keys("a", "?"), keys("b", "??*"), keys("c", "{p}"))
	if got, _ := r.Overlaps(); len(got) != 1 || got[0].By != -1 {
		t.Error(got)
	}
}

// names are all texts of the letters that are not too long.
func names(letters string, n int) []string {
	all := []string{""}
	for i := 0; i < len(all); i++ {
		for _, c := range letters {
			if len(all[i]) < n {
				all = append(all, all[i]+string(c))
			}
		}
	}
	return all
}

// What is said to never match never does, and what is not said to does.
func TestOverlapsAreCertain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	all := names("ab:z", 5)
	never, some := 0, 0
	for range 500 {
		var rules []Rule
		var patterns []pattern
		for i := range 3 {
			p := randomPattern(r, true)
			for len(p.tokens) > 3 {
				p = randomPattern(r, true)
			}
			patterns = append(patterns, p)
			rules = append(rules, keys(string(rune('a'+i)), p.text))
		}
		said, complete := newRules(t, "", rules...).Overlaps()
		var want [3]bool // never matches
		var at captures
		for i := range patterns {
			want[i] = true
			for _, name := range all {
				taken := !patterns[i].match([]byte(name), &at)
				for j := range i {
					taken = taken || patterns[j].match([]byte(name), &at)
				}
				want[i] = want[i] && taken
			}
		}
		var got [3]bool
		for _, o := range said {
			got[o.Rule] = got[o.Rule] || o.Never
			if !o.Never {
				some++
			}
		}
		if strings.ContainsAny(patterns[0].text+patterns[1].text+patterns[2].text, ".") {
			continue // dots are not in the names
		}
		if got != want || !complete {
			t.Fatalf("%q: got %v, want %v", rules, said, want)
		}
		if want[1] || want[2] {
			never++
		}
	}
	if never < 20 || some < 20 {
		t.Errorf("only %d, %d", never, some)
	}
}

func TestFindKeyAllocatesNothing(t *testing.T) {
	r := newRules(t, "", keys("x", "x"), keys("orders-{p}", "*:orders:{p}:*"))
	var m Match
	key := []byte("a:b:orders:1234:cart")
	r.FindKey(key, &m)
	if n := testing.AllocsPerRun(100, func() { r.FindKey(key, &m) }); n != 0 || string(m.Election) != "orders-1234" {
		t.Errorf("%v allocations, %q", n, m.Election)
	}
}
