package policy

import (
	"strings"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// judge decides on a parsed text: the first statement that does not read decides.
func judge(tree *pg_query.ParseResult) SQLVerdict {
	var j judgement
	fence := 0
	for _, raw := range tree.GetStmts() {
		if s := raw.GetStmt().GetVariableSetStmt(); s != nil && isFenceName(s.GetName()) {
			fence++
			j.fenceSet(s)
			continue
		}
		j.afterEnd(raw.GetStmt())
		j.statement(raw.GetStmt())
	}
	if fence > 0 && j.v.Fence != FenceMisused {
		j.v.Fence = FenceSets
		if fence < len(tree.GetStmts()) {
			j.v.Fence = FenceMixed
		}
	}
	if j.v.Fence != FenceSets {
		j.v.Set = nil
	}
	return j.v
}

type judgement struct {
	v     SQLVerdict
	loose bool // behind the end of a transaction
}

// afterEnd refuses statements behind the end of a transaction in one text. The next
// transaction begins as default_transaction_read_only then says, and a function
// may have set that: only between messages can a proxy notice.
func (j *judgement) afterEnd(n *pg_query.Node) {
	t := n.GetTransactionStmt()
	ends := false
	switch t.GetKind() {
	case pg_query.TransactionStmtKind_TRANS_STMT_COMMIT, pg_query.TransactionStmtKind_TRANS_STMT_ROLLBACK:
		ends = !t.GetChain() // a chained transaction is as read-only as the one before
	}
	readOnly := saysReadOnly(t)
	if j.loose && !ends && !readOnly {
		j.refuse(SQLLeavesReadOnly, "statement_after_commit")
	}
	j.v.EndsTransaction = j.v.EndsTransaction || ends
	j.loose = (j.loose || ends) && !readOnly
}

// saysReadOnly reports whether a statement is BEGIN … READ ONLY.
func saysReadOnly(t *pg_query.TransactionStmt) bool {
	for _, o := range t.GetOptions() {
		if d := o.GetDefElem(); d.GetDefname() == "transaction_read_only" && d.GetArg().GetAConst().GetIval().GetIval() == 1 {
			return true
		}
	}
	return false
}

func (j *judgement) refuse(r SQLReason, what string) {
	if j.v.Reason == SQLReads {
		j.v.Reason, j.v.What = r, shortName(what)
	}
}

// statement decides on one statement. Kinds that are not listed are writes.
func (j *judgement) statement(n *pg_query.Node) {
	switch s := n.GetNode().(type) {
	case nil:
		j.refuse(SQLUnparsed, "")
	case *pg_query.Node_SelectStmt:
		j.walk(s.SelectStmt.ProtoReflect())
	case *pg_query.Node_ExplainStmt:
		j.explain(s.ExplainStmt)
	case *pg_query.Node_PrepareStmt:
		j.statement(s.PrepareStmt.GetQuery())
	case *pg_query.Node_ExecuteStmt:
		// What it executes was decided on when it was prepared.
		for _, p := range s.ExecuteStmt.GetParams() {
			j.walk(p.ProtoReflect())
		}
	case *pg_query.Node_DeclareCursorStmt:
		j.statement(s.DeclareCursorStmt.GetQuery())
	case *pg_query.Node_CopyStmt:
		j.copy(s.CopyStmt)
	case *pg_query.Node_VariableSetStmt:
		j.set(s.VariableSetStmt)
	case *pg_query.Node_TransactionStmt:
		j.transaction(s.TransactionStmt)
	case *pg_query.Node_LockStmt:
		// ACCESS SHARE is what every SELECT takes, and what pg_dump asks for.
		const accessShare = 1
		if s.LockStmt.GetMode() != accessShare {
			j.refuse(SQLLocks, "lock_table")
		}
	case *pg_query.Node_DiscardStmt:
		j.v.Resets = true
	case *pg_query.Node_VariableShowStmt, *pg_query.Node_FetchStmt, *pg_query.Node_ClosePortalStmt,
		*pg_query.Node_DeallocateStmt, *pg_query.Node_ListenStmt, *pg_query.Node_UnlistenStmt,
		*pg_query.Node_ConstraintsSetStmt:
	default:
		m := n.ProtoReflect()
		m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
			if f.Kind() == protoreflect.MessageKind {
				j.refuse(SQLWrite, statementName(string(f.Message().Name())))
			}
			return false
		})
		j.refuse(SQLWrite, "")
		// Still look for what a bound session must not do either.
		j.walk(m)
	}
}

// explain allows EXPLAIN of anything that is not executed.
func (j *judgement) explain(s *pg_query.ExplainStmt) {
	for _, o := range s.GetOptions() {
		d := o.GetDefElem()
		if strings.EqualFold(d.GetDefname(), "analyze") && !isFalse(d.GetArg()) {
			j.statement(s.GetQuery())
			return
		}
	}
	switch s.GetQuery().GetNode().(type) {
	case *pg_query.Node_InsertStmt, *pg_query.Node_UpdateStmt, *pg_query.Node_DeleteStmt, *pg_query.Node_MergeStmt,
		*pg_query.Node_CreateTableAsStmt, *pg_query.Node_RefreshMatViewStmt:
		// Planning may fold functions to constants: those count as calls.
		var inner judgement
		inner.functions(s.GetQuery().ProtoReflect())
		if inner.v.Reason != SQLReads {
			j.refuse(inner.v.Reason, inner.v.What)
		}
	default:
		j.statement(s.GetQuery())
	}
}

// copy allows COPY … TO STDOUT.
func (j *judgement) copy(s *pg_query.CopyStmt) {
	switch {
	case s.GetIsFrom():
		j.refuse(SQLWrite, "copy_from")
	case s.GetIsProgram():
		j.refuse(SQLWrite, "copy_to_program")
	case s.GetFilename() != "":
		j.refuse(SQLWrite, "copy_to_file")
	case s.GetQuery() != nil:
		j.statement(s.GetQuery())
	}
}

func (j *judgement) transaction(s *pg_query.TransactionStmt) {
	switch s.GetKind() {
	case pg_query.TransactionStmtKind_TRANS_STMT_BEGIN, pg_query.TransactionStmtKind_TRANS_STMT_START:
		j.transactionModes(s.GetOptions(), "begin_read_write")
	case pg_query.TransactionStmtKind_TRANS_STMT_COMMIT, pg_query.TransactionStmtKind_TRANS_STMT_ROLLBACK,
		pg_query.TransactionStmtKind_TRANS_STMT_SAVEPOINT, pg_query.TransactionStmtKind_TRANS_STMT_RELEASE,
		pg_query.TransactionStmtKind_TRANS_STMT_ROLLBACK_TO:
	case pg_query.TransactionStmtKind_TRANS_STMT_PREPARE:
		j.v.Prepares2PC = true
		j.refuse(SQLWrite, "prepare_transaction")
	case pg_query.TransactionStmtKind_TRANS_STMT_COMMIT_PREPARED:
		j.refuse(SQLWrite, "commit_prepared")
	case pg_query.TransactionStmtKind_TRANS_STMT_ROLLBACK_PREPARED:
		j.refuse(SQLWrite, "rollback_prepared")
	default:
		j.refuse(SQLWrite, "transaction")
	}
}

// transactionModes allows isolation levels, READ ONLY and DEFERRABLE.
func (j *judgement) transactionModes(modes []*pg_query.Node, what string) {
	for _, m := range modes {
		d := m.GetDefElem()
		switch d.GetDefname() {
		case "transaction_isolation", "transaction_deferrable":
		case "transaction_read_only":
			if d.GetArg().GetAConst().GetIval().GetIval() != 1 {
				j.refuse(SQLLeavesReadOnly, what)
			}
		default:
			j.refuse(SQLLeavesReadOnly, what)
		}
	}
}

// readOnlyMode reports whether READ ONLY is among the modes.
func readOnlyMode(modes []*pg_query.Node) bool {
	for _, m := range modes {
		d := m.GetDefElem()
		if d.GetDefname() == "transaction_read_only" && d.GetArg().GetAConst().GetIval().GetIval() == 1 {
			return true
		}
	}
	return false
}

// walk looks at everything below a statement that is allowed as such.
func (j *judgement) walk(m protoreflect.Message) {
	j.calls(m)
	switch m.Interface().(type) {
	case *pg_query.LockingClause:
		j.refuse(SQLLocks, "select_for_update")
	case *pg_query.IntoClause:
		j.refuse(SQLWrite, "select_into")
	case *pg_query.Node, *pg_query.SelectStmt:
	default:
		// Data-modifying WITH, and whatever else a later grammar nests.
		if name := string(m.Descriptor().Name()); strings.HasSuffix(name, "Stmt") {
			j.refuse(SQLWrite, statementName(name))
		}
	}
	below(m, j.walk)
}

// functions looks at the function calls below m alone.
func (j *judgement) functions(m protoreflect.Message) {
	j.calls(m)
	below(m, j.functions)
}

func below(m protoreflect.Message, visit func(protoreflect.Message)) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			l := v.List()
			for i := range l.Len() {
				visit(l.Get(i).Message())
			}
		default:
			visit(v.Message())
		}
		return true
	})
}

// statementName turns the parser's name of a statement into words: AlterTableStmt
// becomes alter_table.
func statementName(s string) string {
	s = strings.TrimSuffix(s, "Stmt")
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i > 0 && 'A' <= s[i] && s[i] <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteByte(lower(s[i]))
	}
	return b.String()
}

// shortName makes a name safe to stand in an SQL identifier.
func shortName(s string) string {
	const most = 24
	b := make([]byte, 0, most)
	for i := 0; i < len(s) && len(b) < most; i++ {
		c := lower(s[i])
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' {
			b = append(b, c)
		}
	}
	return string(b)
}
