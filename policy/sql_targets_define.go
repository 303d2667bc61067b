package policy

import (
	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// define collects what a statement writes that defines, keeps up or gives away something.
func (c *targeting) define(n *pg_query.Node) {
	switch s := n.GetNode().(type) {
	case *pg_query.Node_CreateStmt:
		c.created(s.CreateStmt)
	case *pg_query.Node_CreateForeignTableStmt:
		// What it stands for is elsewhere, and may be any table here too.
		c.unknown("CREATE FOREIGN TABLE")
	case *pg_query.Node_AlterTableStmt:
		c.named(s.AlterTableStmt.ProtoReflect())
		for _, cmd := range s.AlterTableStmt.GetCmds() {
			c.cascade("ALTER TABLE … CASCADE", cmd.GetAlterTableCmd().GetBehavior())
		}
	case *pg_query.Node_CreateTrigStmt:
		c.named(n.ProtoReflect())
		// It follows the table's name from here on, and whoever makes it chooses that.
		c.call(&pg_query.FuncCall{Funcname: s.CreateTrigStmt.GetFuncname()})
	case *pg_query.Node_IndexStmt, *pg_query.Node_CreatePolicyStmt,
		*pg_query.Node_AlterPolicyStmt, *pg_query.Node_CreateStatsStmt, *pg_query.Node_RefreshMatViewStmt,
		*pg_query.Node_CreateSeqStmt, *pg_query.Node_AlterSeqStmt:
		c.named(n.ProtoReflect())
	case *pg_query.Node_CreateTableAsStmt:
		c.write(s.CreateTableAsStmt.GetInto().GetRel())
		c.statement(s.CreateTableAsStmt.GetQuery())
	case *pg_query.Node_ViewStmt:
		c.write(s.ViewStmt.GetView())
		c.under(s.ViewStmt.GetQuery().GetSelectStmt())
		c.visit(s.ViewStmt.GetQuery().ProtoReflect())
	case *pg_query.Node_RuleStmt:
		c.write(s.RuleStmt.GetRelation())
		for _, a := range s.RuleStmt.GetActions() {
			c.visit(a.ProtoReflect())
		}
	case *pg_query.Node_ClusterStmt:
		c.upkeep("CLUSTER of all tables", s.ClusterStmt.GetRelation())
	case *pg_query.Node_ReindexStmt:
		c.upkeep("REINDEX of many tables", s.ReindexStmt.GetRelation())
	case *pg_query.Node_VacuumStmt:
		if len(s.VacuumStmt.GetRels()) == 0 {
			c.unknown("VACUUM or ANALYZE of all tables")
		}
		for _, r := range s.VacuumStmt.GetRels() {
			c.write(r.GetVacuumRelation().GetRelation())
		}
	case *pg_query.Node_DropStmt:
		c.drop(s.DropStmt)
	case *pg_query.Node_RenameStmt:
		c.rename(s.RenameStmt)
	case *pg_query.Node_AlterObjectSchemaStmt:
		if r := s.AlterObjectSchemaStmt.GetRelation(); r != nil {
			c.write(r)
			c.writeName(s.AlterObjectSchemaStmt.GetNewschema(), r.GetRelname())
		} else {
			c.unknown("ALTER … SET SCHEMA")
		}
	case *pg_query.Node_CommentStmt:
		c.comment(s.CommentStmt)
	case *pg_query.Node_GrantStmt:
		c.grant(s.GrantStmt)
	case *pg_query.Node_CreateSchemaStmt:
		if len(s.CreateSchemaStmt.GetSchemaElts()) > 0 || s.CreateSchemaStmt.GetSchemaname() == "" {
			c.unknown("CREATE SCHEMA with more in it")
		} else {
			c.writeSchema(s.CreateSchemaStmt.GetSchemaname())
		}
	default:
		c.unknown(capitals(statementName(kindOfStatement(n))))
	}
}

// created notes the relations of CREATE TABLE: itself, the ones that it inherits from or is
// a part of, and those that its foreign keys refer to.
func (c *targeting) created(s *pg_query.CreateStmt) {
	if s.GetRelation().GetRelpersistence() == "t" {
		// Its own is nobody's; a foreign key of a temporary table is to one. But what it
		// inherits from shows its rows.
		for _, parent := range s.GetInhRelations() {
			c.write(parent.GetRangeVar())
		}
		c.calls(s.ProtoReflect())
		return
	}
	c.named(s.ProtoReflect())
}

// named notes that all relations that a definition names are written, but for those that
// LIKE and queries read.
func (c *targeting) named(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *pg_query.RangeVar:
		c.write(x)
		return
	case *pg_query.TableLikeClause, *pg_query.SelectStmt:
		c.visit(m)
		return
	case *pg_query.FuncCall:
		// Called at once where a column's default fills the rows that are there; and kept.
		c.call(x)
	}
	below(m, c.named)
}

// calls notes the function calls below m alone.
func (c *targeting) calls(m protoreflect.Message) {
	if f, ok := m.Interface().(*pg_query.FuncCall); ok {
		c.call(f)
	}
	below(m, c.calls)
}

// under notes that the table of a view that the server lets be written through is written: what
// is under a view follows the view's name, and whoever makes the view chooses that.
func (c *targeting) under(s *pg_query.SelectStmt) {
	if from := s.GetFromClause(); len(from) == 1 && s.GetWithClause() == nil {
		if r := from[0].GetRangeVar(); r.GetSchemaname() != "pg_catalog" && r.GetSchemaname() != "information_schema" {
			c.write(r)
		}
	}
}

func (c *targeting) upkeep(what string, r *pg_query.RangeVar) {
	if r == nil {
		c.unknown(what)
	}
	c.write(r)
}

// qualified notes that what a list of names stands for is written.
func (c *targeting) qualified(parts []string) {
	switch n := len(parts); n {
	case 0:
		c.unknown("something without a name")
	case 1:
		c.writeName("", parts[0])
	default:
		c.writeName(parts[n-2], parts[n-1])
	}
}

func (c *targeting) drop(s *pg_query.DropStmt) {
	for _, o := range s.GetObjects() {
		parts := texts(o.GetList().GetItems())
		switch s.GetRemoveType() {
		case pg_query.ObjectType_OBJECT_TABLE, pg_query.ObjectType_OBJECT_VIEW, pg_query.ObjectType_OBJECT_MATVIEW,
			pg_query.ObjectType_OBJECT_SEQUENCE, pg_query.ObjectType_OBJECT_INDEX, pg_query.ObjectType_OBJECT_FOREIGN_TABLE:
			c.qualified(parts)
		case pg_query.ObjectType_OBJECT_TRIGGER, pg_query.ObjectType_OBJECT_RULE, pg_query.ObjectType_OBJECT_POLICY:
			c.qualified(parts[:max(len(parts)-1, 0)]) // the last is its own name
		case pg_query.ObjectType_OBJECT_SCHEMA:
			c.writeSchema(o.GetString_().GetSval())
		default:
			c.unknown("DROP of what is no relation")
		}
	}
	c.cascade("DROP … CASCADE", s.GetBehavior())
}

func (c *targeting) rename(s *pg_query.RenameStmt) {
	r := s.GetRelation()
	if r == nil {
		c.unknown("ALTER … RENAME of what is no relation")
		return
	}
	c.write(r)
	switch s.GetRenameType() {
	case pg_query.ObjectType_OBJECT_TABLE, pg_query.ObjectType_OBJECT_VIEW, pg_query.ObjectType_OBJECT_MATVIEW,
		pg_query.ObjectType_OBJECT_SEQUENCE, pg_query.ObjectType_OBJECT_INDEX, pg_query.ObjectType_OBJECT_FOREIGN_TABLE:
		c.writeName(r.GetSchemaname(), s.GetNewname())
	}
	c.cascade("ALTER … CASCADE", s.GetBehavior())
}

func (c *targeting) comment(s *pg_query.CommentStmt) {
	parts := texts(s.GetObject().GetList().GetItems())
	switch s.GetObjtype() {
	case pg_query.ObjectType_OBJECT_TABLE, pg_query.ObjectType_OBJECT_VIEW, pg_query.ObjectType_OBJECT_MATVIEW,
		pg_query.ObjectType_OBJECT_SEQUENCE, pg_query.ObjectType_OBJECT_INDEX, pg_query.ObjectType_OBJECT_FOREIGN_TABLE:
		c.qualified(parts)
	case pg_query.ObjectType_OBJECT_COLUMN, pg_query.ObjectType_OBJECT_TABCONSTRAINT, pg_query.ObjectType_OBJECT_TRIGGER,
		pg_query.ObjectType_OBJECT_RULE, pg_query.ObjectType_OBJECT_POLICY:
		c.qualified(parts[:max(len(parts)-1, 0)])
	default:
		c.unknown("COMMENT on what is no relation")
	}
}

func (c *targeting) grant(s *pg_query.GrantStmt) {
	relation := s.GetObjtype() == pg_query.ObjectType_OBJECT_TABLE || s.GetObjtype() == pg_query.ObjectType_OBJECT_SEQUENCE
	switch {
	case relation && s.GetTargtype() == pg_query.GrantTargetType_ACL_TARGET_OBJECT:
		c.relations(s.GetObjects())
	case relation && s.GetTargtype() == pg_query.GrantTargetType_ACL_TARGET_ALL_IN_SCHEMA:
		for _, o := range s.GetObjects() {
			c.writeSchema(o.GetString_().GetSval())
		}
	default:
		c.unknown("GRANT or REVOKE of what is no relation")
	}
	c.cascade("REVOKE … CASCADE", s.GetBehavior())
}
