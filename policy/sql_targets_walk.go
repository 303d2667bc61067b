package policy

import (
	"slices"
	"strings"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A targeting collects the targets of a text.
type targeting struct {
	t     SQLTargets
	where pathKind // where a name without a schema is looked for, by now
	path  []string
	ctes  []string // names that WITH gives to queries, in scope
	dry   bool     // nothing is run: EXPLAIN
}

func targetsOf(tree *pg_query.ParseResult) *SQLTargets {
	c := targeting{where: pathSession}
	c.t.Statements = len(tree.GetStmts())
	for _, raw := range tree.GetStmts() {
		c.statement(raw.GetStmt())
	}
	return &c.t
}

// statement collects what one statement writes.
//
// INVARIANT: kinds that are not listed may write anything.
func (c *targeting) statement(n *pg_query.Node) {
	c.t.Late = c.t.Late || late(n)
	switch s := n.GetNode().(type) {
	case *pg_query.Node_SelectStmt, *pg_query.Node_InsertStmt, *pg_query.Node_UpdateStmt,
		*pg_query.Node_DeleteStmt, *pg_query.Node_MergeStmt:
		c.visit(n.ProtoReflect())
	case *pg_query.Node_ExplainStmt:
		c.explain(s.ExplainStmt)
	case *pg_query.Node_PrepareStmt:
		c.prepare(s.PrepareStmt)
	case *pg_query.Node_ExecuteStmt:
		c.execute(s.ExecuteStmt)
	case *pg_query.Node_DeallocateStmt:
		if s.DeallocateStmt.GetIsall() {
			c.t.DeallocatesAll = true
		} else {
			c.t.Deallocates = append(c.t.Deallocates, s.DeallocateStmt.GetName())
		}
	case *pg_query.Node_DeclareCursorStmt:
		c.statement(s.DeclareCursorStmt.GetQuery())
	case *pg_query.Node_CopyStmt:
		c.copy(s.CopyStmt)
	case *pg_query.Node_TruncateStmt:
		c.relations(s.TruncateStmt.GetRelations())
		c.cascade("TRUNCATE … CASCADE", s.TruncateStmt.GetBehavior())
	case *pg_query.Node_LockStmt:
		if s.LockStmt.GetMode() != accessShare {
			c.relations(s.LockStmt.GetRelations())
		}
	case *pg_query.Node_CallStmt:
		c.visit(s.CallStmt.ProtoReflect())
		c.beyond("call")
	case *pg_query.Node_VariableSetStmt:
		c.set(s.VariableSetStmt)
	case *pg_query.Node_TransactionStmt:
		c.transaction(s.TransactionStmt)
	case *pg_query.Node_DiscardStmt:
		if s.DiscardStmt.GetTarget() == pg_query.DiscardMode_DISCARD_ALL {
			c.t.DeallocatesAll = true
			c.touch()
		}
	case *pg_query.Node_FetchStmt:
		c.touch() // by what the cursor's query calls, which was judged when it was declared
	case *pg_query.Node_VariableShowStmt, *pg_query.Node_ClosePortalStmt,
		*pg_query.Node_ListenStmt, *pg_query.Node_UnlistenStmt, *pg_query.Node_ConstraintsSetStmt:
	default:
		c.define(n)
		c.beyond(statementName(kindOfStatement(n)))
	}
}

// late reports whether the server plans a statement only when it runs it.
func late(n *pg_query.Node) bool {
	switch s := n.GetNode().(type) {
	case *pg_query.Node_SelectStmt:
		first := s.SelectStmt
		for first.GetLarg() != nil {
			first = first.GetLarg()
		}
		return first.GetIntoClause() != nil
	case *pg_query.Node_InsertStmt, *pg_query.Node_UpdateStmt, *pg_query.Node_DeleteStmt, *pg_query.Node_MergeStmt:
		return false
	}
	return true
}

// accessShare is what every SELECT takes, and what pg_dump asks for.
const accessShare = 1

// kindOfStatement is the parser's name of a statement.
func kindOfStatement(n *pg_query.Node) (name string) {
	n.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if f.Kind() == protoreflect.MessageKind {
			name = string(f.Message().Name())
		}
		return false
	})
	return name
}

// unknown notes that anything may be written.
func (c *targeting) unknown(what string) {
	c.add(SQLName{Target: Target{Kind: Unknown, What: what}})
	c.touch()
}

func (c *targeting) beyond(what string) {
	if c.t.Beyond == "" {
		c.t.Beyond = shortName(what)
	}
}

// touch notes that the search_path may be another from here on.
func (c *targeting) touch() {
	c.t.TouchesPath = true
	c.where, c.path = pathUnknown, nil
}

func (c *targeting) add(n SQLName) {
	if c.dry && n.Kind == Table {
		return // nothing is run; but functions may be folded
	}
	switch last := len(c.t.Writes) - 1; {
	case slices.ContainsFunc(c.t.Writes, func(o SQLName) bool { return same(o, n) }):
	case last == maxSQLNames:
	case last == maxSQLNames-1:
		c.t.Writes = append(c.t.Writes, SQLName{Target: Target{Kind: Unknown, What: "a text with very many names"}})
	default:
		c.t.Writes = append(c.t.Writes, n)
	}
}

func same(a, b SQLName) bool {
	return a.Target == b.Target && a.where == b.where && slices.Equal(a.path, b.path)
}

// name is a name of the statement at hand. It reports false for what is a session's own.
func (c *targeting) name(kind TargetKind, schema, name string) (SQLName, bool) {
	n := SQLName{Target: Target{Kind: kind, Schema: cutName(schema), Name: cutName(name)}}
	switch {
	case isTemp(schema):
		return n, false
	case !isASCII(schema) || !isASCII(name):
		// The server's lower case of it depends on the database's encoding, see foldForeign.
		n = SQLName{Target: Target{Kind: Unknown, What: "a name beyond ASCII"}}
	case schema == "":
		n.where, n.path = c.where, c.path
	}
	return n, true
}

// write notes that a relation is written.
func (c *targeting) write(r *pg_query.RangeVar) {
	if r == nil || r.GetRelpersistence() == "t" {
		return
	}
	c.writeName(r.GetSchemaname(), r.GetRelname())
}

func (c *targeting) writeName(schema, name string) {
	if n, ok := c.name(Table, schema, name); ok {
		c.add(n)
	}
}

func (c *targeting) writeSchema(schema string) {
	n := SQLName{Target: Target{Kind: Table, Schema: cutName(schema), AnyName: true}}
	if !isASCII(schema) {
		n = SQLName{Target: Target{Kind: Unknown, What: "a name beyond ASCII"}}
	}
	c.add(n)
}

func (c *targeting) read(r *pg_query.RangeVar) {
	if r.GetSchemaname() == "" && slices.Contains(c.ctes, r.GetRelname()) {
		return
	}
	n, ok := c.name(Table, r.GetSchemaname(), r.GetRelname())
	if !ok || slices.ContainsFunc(c.t.Reads, func(o SQLName) bool { return same(o, n) }) {
		return
	}
	if len(c.t.Reads) == maxSQLNames {
		c.beyond("very_many_names")
		return
	}
	c.t.Reads = append(c.t.Reads, n)
}

func (c *targeting) relations(list []*pg_query.Node) {
	for _, n := range list {
		c.write(n.GetRangeVar())
	}
}

func (c *targeting) cascade(what string, b pg_query.DropBehavior) {
	if b == pg_query.DropBehavior_DROP_CASCADE {
		c.unknown(what)
		c.beyond("cascade")
	}
}

// explain collects what EXPLAIN runs, and what planning may call.
func (c *targeting) explain(s *pg_query.ExplainStmt) {
	for _, o := range s.GetOptions() {
		d := o.GetDefElem()
		if strings.EqualFold(d.GetDefname(), "analyze") && !isFalse(d.GetArg()) {
			c.statement(s.GetQuery())
			return
		}
	}
	was := c.dry
	c.dry = true
	c.statement(s.GetQuery())
	c.dry = was
}

func (c *targeting) prepare(s *pg_query.PrepareStmt) {
	own := targeting{where: pathSession}
	own.t.Statements = 1
	own.statement(s.GetQuery())
	c.t.Prepares = append(c.t.Prepares, SQLPrepared{s.GetName(), &own.t})
	c.statement(s.GetQuery())
}

func (c *targeting) execute(s *pg_query.ExecuteStmt) {
	if !c.dry {
		c.t.Executes = append(c.t.Executes, SQLExecute{s.GetName(), c.where, c.path})
	}
	for _, p := range s.GetParams() {
		c.visit(p.ProtoReflect())
	}
	c.where, c.path = pathUnknown, nil // it may set the path; whoever prepared it knows
}

func (c *targeting) copy(s *pg_query.CopyStmt) {
	if s.GetIsFrom() {
		c.write(s.GetRelation())
		if s.GetWhereClause() != nil {
			c.visit(s.GetWhereClause().ProtoReflect())
		}
	} else if s.GetRelation() != nil {
		c.read(s.GetRelation())
	}
	if s.GetQuery() != nil {
		c.statement(s.GetQuery())
	}
	switch {
	case s.GetIsProgram():
		c.unknown("COPY … PROGRAM")
	case s.GetFilename() != "" && !s.GetIsFrom():
		c.unknown("COPY … TO a file")
	}
	if s.GetFilename() != "" {
		c.beyond("copy_file")
	}
}

func (c *targeting) transaction(s *pg_query.TransactionStmt) {
	switch s.GetKind() {
	case pg_query.TransactionStmtKind_TRANS_STMT_BEGIN, pg_query.TransactionStmtKind_TRANS_STMT_START,
		pg_query.TransactionStmtKind_TRANS_STMT_SAVEPOINT, pg_query.TransactionStmtKind_TRANS_STMT_RELEASE:
	case pg_query.TransactionStmtKind_TRANS_STMT_COMMIT, pg_query.TransactionStmtKind_TRANS_STMT_ROLLBACK,
		pg_query.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
		c.t.Rewinds = true
		if c.where == pathSession || c.where == pathAfterEnd {
			c.where = pathAfterEnd
		} else {
			c.where, c.path = pathUnknown, nil
		}
	case pg_query.TransactionStmtKind_TRANS_STMT_PREPARE:
		c.t.Rewinds = true
		c.unknown("PREPARE TRANSACTION")
	default:
		// Who knows what a prepared transaction wrote.
		c.unknown("COMMIT PREPARED or ROLLBACK PREPARED")
	}
}

// set follows the settings that say where a name without a schema is.
func (c *targeting) set(s *pg_query.VariableSetStmt) {
	name := strings.ToLower(s.GetName())
	switch {
	case s.GetKind() == pg_query.VariableSetKind_VAR_RESET_ALL || movesPath(name):
	case s.GetKind() == pg_query.VariableSetKind_VAR_SET_MULTI:
		return
	default:
		for _, a := range s.GetArgs() {
			c.visit(a.ProtoReflect())
		}
		return
	}
	c.touch()
	if s.GetKind() != pg_query.VariableSetKind_VAR_SET_VALUE || name != "search_path" {
		return
	}
	var path []string
	for _, a := range s.GetArgs() {
		v, ok := literal(a)
		if !ok || v == "$user" { // whom it stands for may have changed in the text
			return
		}
		path = append(path, cutName(v))
	}
	c.where, c.path = pathConstant, path
}

// movesPath reports whether a setting says where a name without a schema is.
func movesPath(name string) bool {
	switch name {
	case "search_path", "role", "session_authorization":
		return true
	}
	return !isASCII(name) // it may be another name to the server, see foldForeign
}
