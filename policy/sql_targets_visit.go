package policy

import (
	"slices"
	"strings"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// visit collects what m, of a query, and everything below it writes, reads and calls.
func (c *targeting) visit(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *pg_query.SelectStmt:
		c.with(x.GetWithClause(), func() {
			if x.GetIntoClause() != nil {
				c.write(x.GetIntoClause().GetRel())
			}
			for _, l := range x.GetLockingClause() {
				c.lock(x.GetFromClause(), l.GetLockingClause())
			}
			c.children(m, "with_clause", "into_clause", "locking_clause")
		})
		return
	case *pg_query.InsertStmt:
		c.write(x.GetRelation())
		c.with(x.GetWithClause(), func() { c.children(m, "with_clause", "relation") })
		return
	case *pg_query.UpdateStmt:
		c.write(x.GetRelation())
		c.with(x.GetWithClause(), func() { c.children(m, "with_clause", "relation") })
		return
	case *pg_query.DeleteStmt:
		c.write(x.GetRelation())
		c.with(x.GetWithClause(), func() { c.children(m, "with_clause", "relation") })
		return
	case *pg_query.MergeStmt:
		c.write(x.GetRelation())
		c.with(x.GetWithClause(), func() { c.children(m, "with_clause", "relation") })
		return
	case *pg_query.RangeVar:
		c.read(x)
		return
	case *pg_query.FuncCall:
		c.call(x)
	case *pg_query.ColumnRef:
		if f := x.GetFields(); len(f) > 1 {
			c.column(f[len(f)-1])
		}
	case *pg_query.A_Indirection:
		for _, n := range x.GetIndirection() {
			c.column(n)
		}
	case *pg_query.TypeName:
		c.typeName(x)
	case *pg_query.A_Expr:
		if f := x.GetName(); len(f) > 1 && f[0].GetString_().GetSval() != "pg_catalog" {
			c.beyond("operator")
		}
	case *pg_query.Node, *pg_query.CallStmt:
	default:
		if name := string(m.Descriptor().Name()); strings.HasSuffix(name, "Stmt") {
			// Whatever a later grammar nests.
			c.unknown(capitals(statementName(name)))
		}
	}
	c.children(m)
}

// children visits what is below m, but for some fields.
func (c *targeting) children(m protoreflect.Message, but ...protoreflect.Name) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind || slices.Contains(but, f.Name()):
		case f.IsList():
			l := v.List()
			for i := range l.Len() {
				c.visit(l.Get(i).Message())
			}
		default:
			c.visit(v.Message())
		}
		return true
	})
}

// with visits the queries of a WITH clause, and then the rest of its statement, in which
// their names are no relations.
func (c *targeting) with(w *pg_query.WithClause, rest func()) {
	before := len(c.ctes)
	if w.GetRecursive() {
		for _, n := range w.GetCtes() {
			c.ctes = append(c.ctes, n.GetCommonTableExpr().GetCtename())
		}
	}
	for _, n := range w.GetCtes() {
		c.visit(n.ProtoReflect())
		if !w.GetRecursive() {
			c.ctes = append(c.ctes, n.GetCommonTableExpr().GetCtename())
		}
	}
	rest()
	c.ctes = c.ctes[:before]
}

// lock notes the tables of FOR UPDATE and the like: those that OF names, else all of the
// FROM clause, with its subqueries.
func (c *targeting) lock(from []*pg_query.Node, l *pg_query.LockingClause) {
	of := l.GetLockedRels()
	if len(of) == 0 {
		for _, n := range from {
			c.lockItem(n, "")
		}
	}
	for _, r := range of {
		alias := r.GetRangeVar().GetRelname()
		found := false
		for _, n := range from {
			found = c.lockItem(n, alias) || found
		}
		if !found {
			for _, n := range from {
				c.lockItem(n, "")
			}
		}
	}
}

// lockItem notes what a FROM item of that alias locks; of all where the alias is empty.
func (c *targeting) lockItem(n *pg_query.Node, alias string) bool {
	switch x := n.GetNode().(type) {
	case *pg_query.Node_RangeVar:
		r := x.RangeVar
		name := r.GetRelname()
		if a := r.GetAlias().GetAliasname(); a != "" {
			name = a
		}
		if alias != "" && name != alias {
			return false
		}
		if r.GetSchemaname() != "" || !slices.Contains(c.ctes, r.GetRelname()) {
			c.write(r)
		}
		return true
	case *pg_query.Node_JoinExpr:
		j := x.JoinExpr
		if alias != "" && j.GetAlias().GetAliasname() == alias {
			alias = ""
		}
		left := c.lockItem(j.GetLarg(), alias)
		return c.lockItem(j.GetRarg(), alias) || left
	case *pg_query.Node_RangeSubselect:
		if alias != "" && x.RangeSubselect.GetAlias().GetAliasname() != alias {
			return false
		}
		c.lockQuery(x.RangeSubselect.GetSubquery().GetSelectStmt())
		return true
	case *pg_query.Node_RangeTableSample:
		return c.lockItem(x.RangeTableSample.GetRelation(), alias)
	}
	return false
}

// lockQuery notes what FOR UPDATE of a subquery locks.
func (c *targeting) lockQuery(s *pg_query.SelectStmt) {
	if s == nil {
		return
	}
	before := len(c.ctes)
	for _, n := range s.GetWithClause().GetCtes() {
		c.ctes = append(c.ctes, n.GetCommonTableExpr().GetCtename())
	}
	for _, n := range s.GetFromClause() {
		c.lockItem(n, "")
	}
	c.lockQuery(s.GetLarg())
	c.lockQuery(s.GetRarg())
	c.ctes = c.ctes[:before]
}

// call notes a function call, unless it is one of the server's own that write nothing.
func (c *targeting) call(f *pg_query.FuncCall) {
	parts := texts(f.GetFuncname())
	if len(parts) == 0 {
		c.unknown("a function call without a name")
		return
	}
	name, schema := parts[len(parts)-1], ""
	if len(parts) > 1 {
		schema = parts[len(parts)-2]
	}
	own := schema == "" || schema == "pg_catalog"
	switch {
	case !isASCII(name) || !isASCII(schema):
		c.unknown(foreignFunction)
	case own && name == "set_config":
		c.setConfig(f.GetArgs())
	case own && (name == "nextval" || name == "setval"):
		c.sequence(name, f.GetArgs())
	case own && (builtin[name] || readingSystem[name] || readingAnyway[name]) || schema == "information_schema":
		if strings.Contains(name, "_to_xml") || strings.HasPrefix(name, "pg_input_") {
			c.beyond(name) // reads what a text names, or checks a type's conditions
		}
	case schema == "" && (strings.HasPrefix(name, "pg_") || !readsOnly(name)):
		c.function("pg_catalog", name)
	default:
		c.function(schema, name)
	}
}

func (c *targeting) function(schema, name string) {
	if n, ok := c.name(Function, schema, name); ok {
		c.add(n)
	} else {
		c.unknown("a function in pg_temp")
	}
	c.touch()
}

// column decides on the last name of a column that may be a function of the server's own.
func (c *targeting) column(n *pg_query.Node) {
	var j judgement
	if j.column(n); j.v.Reason != SQLReads {
		c.function("pg_catalog", n.GetString_().GetSval())
	}
}

func (c *targeting) setConfig(args []*pg_query.Node) {
	c.beyond("set_config")
	name, ok := "", len(args) >= 2
	if ok {
		name, ok = literal(args[0])
	}
	if !ok || movesPath(strings.ToLower(name)) {
		c.touch()
	}
}

// sequence notes what nextval and setval write.
func (c *targeting) sequence(function string, args []*pg_query.Node) {
	if len(args) > 0 {
		arg := args[0]
		if t := arg.GetTypeCast(); t != nil {
			arg = t.GetArg()
		}
		// Digits are no name, but the sequence's own number.
		if v, ok := literal(arg); ok && strings.Trim(v, "0123456789") != "" && arg.GetAConst().GetSval() != nil {
			switch names, ok := splitNames(v, '.'); {
			case ok && len(names) == 1:
				c.writeName("", names[0])
				return
			case ok && len(names) > 1:
				c.writeName(names[len(names)-2], names[len(names)-1])
				return
			}
		}
	}
	c.unknown(function + " of a sequence that is not named")
}

func (c *targeting) typeName(t *pg_query.TypeName) {
	parts := texts(t.GetNames())
	switch {
	case t.GetPctType() || len(parts) > 1 && parts[0] != "pg_catalog",
		len(parts) == 1 && !builtinTypes[parts[0]]:
		c.beyond("type")
	}
}

func texts(list []*pg_query.Node) []string {
	var all []string
	for _, n := range list {
		all = append(all, n.GetString_().GetSval())
	}
	return all
}

// capitals are the words of a statement's name, as a person writes them.
func capitals(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "_", " ")) }
