package pgfence

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fenceproxy/fenceproxy/election"
	"github.com/fenceproxy/fenceproxy/policy"
)

// Shadowed are the protections that never count, a line each, since those before them take
// all their tables. One that says the same as what shadows it harms nobody and is left out.
//
// They are not refused: a protection is moved behind another, with no table unprotected
// meanwhile, by adding the later one first.
func (p Protector) Shadowed(ctx context.Context) (lines []string, err error) {
	rows, err := p.Tables.Query(ctx, `SELECT pattern, election, always FROM fenceproxy.protection ORDER BY id`)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Protection])
	if err != nil {
		return nil, err
	}
	rules := make([]policy.Rule, 0, len(all))
	for _, one := range all {
		rules = append(rules, policy.Rule{Kind: policy.Table, Patterns: []string{one.Pattern}, Election: one.Election})
	}
	compiled, err := policy.NewRules(rules, "", election.CheckID)
	if err != nil {
		return nil, err
	}
	overlaps, _ := compiled.Overlaps()
	for _, o := range overlaps {
		one := all[o.Rule]
		switch {
		case !o.Never:
		case o.By < 0:
			lines = append(lines, fmt.Sprintf("%s never counts: the patterns before it together take all its tables. Remove those and add them again: they come last then", one))
		case all[o.By].Election == one.Election && all[o.By].Always == one.Always && !strings.Contains(one.Election, "{"):
		default:
			by := all[o.By]
			lines = append(lines, fmt.Sprintf("%s never counts: %s, which comes before it, takes all its tables. To let it come last: --remove --protect '%s', then --protect '%s'", one, by, by.Pattern, by))
		}
	}
	return lines, nil
}
