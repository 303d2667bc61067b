package pgfence

// MacSQL is macSQL.
func MacSQL(pid, start, number, election string) string {
	return macSQL(pid, start, number, election)
}

// Expression is expression.
func (p Protection) Expression() (match, election string) { return p.expression() }
