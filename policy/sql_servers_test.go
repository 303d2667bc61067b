package policy_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/internal/testenv"
)

// What the policy says is held against what every version of the server does: to each
// statement and function of the tables, to those in disguise, to what clients send, and
// to texts that one might read otherwise than the other.
func TestSQLOnServers(t *testing.T) {
	statements, functions := readTable(t, statementsFile), readTable(t, functionsFile)
	disguised, clients := refusedCases(t), clientTexts(t)
	versions := testenv.PostgresVersions(t)
	for i, v := range versions {
		t.Run(v.String(), func(t *testing.T) {
			l := newLab(t, v)
			l.prepareFunctions()
			for _, part := range []struct {
				name string
				run  func()
			}{
				{"functions are named", func() { l.volatileFunctionsAreNamed(functions) }},
				{"statements", func() { statements.run(l) }},
				{"functions", func() { functions.run(l) }},
				{"builtins", func() { l.builtinsLeaveNoTrace(functions) }},
				{"disguises", func() { l.disguisesAreReal(disguised) }},
				{"clients", func() { l.clientsLeaveNoTrace(clients) }},
				{"misread", l.misreadsNothing},
				{"rules", l.rulesSeeWhatIsWritten},
			} {
				t.Run(part.name, func(t *testing.T) {
					l.use(t)
					part.run()
				})
			}
			if i == len(versions)-1 { // the tables of conversions are old, and long
				t.Run("encodings", func(t *testing.T) {
					l.use(t)
					l.encodingsAreSafe()
				})
			}
		})
	}
	statements.servers(t, versions)
	functions.servers(t, versions)
}
