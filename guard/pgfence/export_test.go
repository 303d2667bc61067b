package pgfence

// Expression is expression.
func (p Protection) Expression() (match, election string) { return p.expression() }
