package config

import (
	"errors"
	"slices"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// maxRules bounds the rules of a listener, and maxPatterns the patterns of one.
const (
	maxRules    = 1000
	maxPatterns = 1000
)

// rules reads which election rules what.
func (r *reader) rules(o *object, l *Listener) {
	f := o.take("rules")
	if f == nil {
		return
	}
	items := f.list()
	if len(items) > maxRules {
		f.mistake("has more than %d rules", maxRules)
		return
	}
	var rules []policy.Rule
	var objects []*object
	var patterns [][]*field
	for _, item := range items {
		one := item.object()
		rule, fields := r.rule(one, l)
		rules, objects, patterns = append(rules, rule), append(objects, one), append(patterns, fields)
		one.close()
	}
	if len(r.mistakes) > 0 {
		return // what follows would only say it again
	}
	compiled, err := policy.NewRules(rules, l.Election, election.CheckID)
	var bad *policy.RuleError
	switch {
	case errors.As(err, &bad):
		objects[bad.Rule].mistake("%v", bad.Err)
		return
	case err != nil:
		f.mistake("%v", err)
		return
	}
	l.Rules = compiled
	overlaps, _ := compiled.Overlaps()
	for _, o := range overlaps {
		// A pattern that is only written twice in one rule harms nobody: check says so.
		if o.Never && o.By != o.Rule {
			patterns[o.Rule][o.Pattern].mistake("%s", o.Text)
		}
	}
	for i, rule := range rules {
		t, _ := policy.ParseTemplate(rule.Election)
		if rule.Election != "" && len(t.Names()) == 0 && !l.Serves(rule.Election) {
			objects[i].mistake("%q is not among the listener's elections", rule.Election)
		}
	}
}

// rule reads one rule, and returns where its patterns stand.
func (r *reader) rule(o *object, l *Listener) (rule policy.Rule, patterns []*field) {
	kinds := map[string]policy.TargetKind{"tables": policy.Table, "functions": policy.Function, "keys": policy.Key}
	names := []string{"tables", "functions"}
	if l.Protocol == Redis || l.Protocol == Valkey {
		names = []string{"keys"}
	}
	for _, name := range []string{"tables", "functions", "keys"} {
		f := o.take(name)
		switch {
		case f == nil:
			continue
		case !slices.Contains(names, name) && l.Protocol != "":
			f.mistake("is not for %s: its rules have %s", l.Protocol, listOf(names))
			continue
		case len(patterns) > 0:
			f.mistake("given together with %s: make it a rule of its own", rule.Kind)
			continue
		}
		rule.Kind = kinds[name]
		patterns = []*field{f}
		if f.isList() {
			patterns = f.list()
		}
		if len(patterns) > maxPatterns {
			f.mistake("has more than %d patterns", maxPatterns)
			patterns = patterns[:maxPatterns]
		}
		for _, p := range patterns {
			s, _ := p.text()
			if name != "keys" {
				if err := policy.CheckNamePattern(s); err != nil {
					p.mistake("%v", err)
				}
			}
			rule.Patterns = append(rule.Patterns, s)
		}
	}
	if len(patterns) == 0 {
		o.mistake("names nothing: give it %s", listOf(names))
	}
	elections, access := o.take("election"), o.take("access")
	switch {
	case elections != nil && access != nil:
		access.mistake("given together with election: only one of the two")
	case elections != nil:
		rule.Election, _ = elections.text()
	case access == nil:
		o.mistake("decides nothing: give it election, or access: open or deny")
	default:
		rule.Access = policy.Open
		if access.oneOf("open", "deny") == "deny" {
			rule.Access = policy.Deny
		}
	}
	return rule, patterns
}

func listOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return names[0] + " or " + names[1]
}
