package policy

import (
	"strings"
	"unicode/utf8"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// calls decides on m itself, if it is a function call or may be one: the server takes x.f
// for f(x) where x has no column f, whatever the type of x. A SET within another statement
// is as good as set_config.
func (j *judgement) calls(m protoreflect.Message) {
	switch x := m.Interface().(type) {
	case *pg_query.VariableSetStmt:
		// ALTER ROLE … SET fence.token would keep the token in the catalog.
		if isFenceName(x.GetName()) {
			j.v.Fence = FenceMisused
		}
	case *pg_query.DoStmt:
		j.do(x)
	case *pg_query.FuncCall:
		j.call(x)
	case *pg_query.ColumnRef:
		if f := x.GetFields(); len(f) > 1 {
			j.column(f[len(f)-1])
		}
	case *pg_query.A_Indirection:
		for _, n := range x.GetIndirection() {
			j.column(n)
		}
	}
}

// do looks for a token in what DO runs.
func (j *judgement) do(s *pg_query.DoStmt) {
	for _, n := range s.GetArgs() {
		if d := n.GetDefElem(); d.GetDefname() == "as" && containsFold([]byte(d.GetArg().GetString_().GetSval()), "fence.token") {
			j.v.Fence = FenceMisused
		}
	}
}

// column decides on the last name of a column that may be a function. A column may well
// be called lo_price: of such names only the functions themselves are refused.
func (j *judgement) column(n *pg_query.Node) {
	name := n.GetString_().GetSval()
	folded, _ := foldForeign(name)
	for _, p := range columnPrefixes {
		if strings.HasPrefix(folded, p) && !actingColumns[folded] {
			return
		}
	}
	if !readsOnly(name) {
		j.refuse(SQLFunction, name)
	}
}

// columnPrefixes are those of actingPrefixes with which columns are named too, and
// actingColumns the functions of those names.
var (
	columnPrefixes = []string{"lo_", "brin_", "gin_"}
	actingColumns  = words(`lo_creat lo_create lo_export lo_from_bytea lo_import lo_manage lo_put lo_truncate lo_truncate64 lo_unlink
		brin_desummarize_range brin_summarize_new_values brin_summarize_range gin_clean_pending_list`)
)

// call decides on a function call, by the function's last name: the schema may be any.
func (j *judgement) call(f *pg_query.FuncCall) {
	names := f.GetFuncname()
	if len(names) == 0 {
		j.refuse(SQLUnparsed, "")
		return
	}
	name := names[len(names)-1].GetString_().GetSval()
	if folded, ok := foldForeign(name); ok && folded == "set_config" {
		j.refuse(SQLFunction, folded)
		return
	}
	if name == "set_config" {
		j.setConfig(f.GetArgs())
		return
	}
	if !readsOnly(name) {
		j.refuse(SQLFunction, name)
	}
}

func (j *judgement) setConfig(args []*pg_query.Node) {
	name, ok := "", len(args) >= 2
	if ok {
		// Named notation (name => value) is no literal, and so refused.
		name, ok = literal(args[0])
	}
	if !ok {
		// pg_dump takes the name from pg_settings. Its values mean nothing to the settings
		// that matter here: no boolean, no encoding, no token.
		if len(args) == 3 {
			switch v, _ := literal(args[1]); v {
			case "view", "view, foreign-table":
				return
			}
		}
		j.refuse(SQLFunction, "set_config")
		return
	}
	if isFenceName(name) {
		j.v.Fence = FenceMisused
		j.refuse(SQLFunction, "set_config")
		return
	}
	value, ok := literal(args[1])
	if !ok {
		value = "?" // no value that assign takes for a good one
	}
	if name = strings.ToLower(name); name == "client_encoding" && !ok {
		j.refuse(SQLSetting, name)
	}
	j.assign(name, value)
}

// readsOnly says whether a session without a live token may call a function of this
// name. System functions (pg_…) must be known to be harmless; of the others, those
// are refused that are known not to be.
func readsOnly(name string) bool {
	if folded, ok := foldForeign(name); ok && !readsOnly(folded) {
		return false
	}
	if strings.HasPrefix(name, "pg_") {
		return readingSystem[name]
	}
	for _, p := range actingPrefixes {
		if strings.HasPrefix(name, p) {
			return readingAnyway[name]
		}
	}
	return !acting[name]
}

// foldForeign writes i for each letter beyond ASCII, where there is one. Where the database's
// encoding has one byte a character, the server's lower case of İ, unquoted, is i, so
// that SET_CONFİG is set_config. No other letter's is in ASCII.
func foldForeign(name string) (string, bool) {
	if isASCII(name) {
		return name, false
	}
	b := make([]byte, 0, len(name))
	for _, r := range name {
		if r >= utf8.RuneSelf {
			r = 'i'
		}
		b = append(b, byte(r))
	}
	return string(b), true
}

// actingPrefixes begin the names of functions outside pg_… that act.
var actingPrefixes = []string{
	"dblink",         // SQL in another session, which nothing binds
	"lo_",            // large objects: a read-only transaction allows them on 14 and 15
	"binary_upgrade", // internals
	"brin_", "gin_",  // index maintenance
	"crosstab", "connectby", "xpath_table", // run their argument as SQL
	"query_to_xml", // runs its argument as SQL
}

// readingAnyway are functions with one of those prefixes that only read.
var readingAnyway = words(`lo_get lo_open lo_close lo_lseek lo_lseek64 lo_tell lo_tell64
	brin_metapage_info brin_page_items brin_page_type brin_revmap_data
	gin_index_check gin_leafpage_items gin_metapage_info gin_page_opaque_info`)

// acting are functions outside pg_… that write, lock tables against others, start a
// process, or run their argument as SQL. Those of pg_surgery change rows in a
// read-only transaction too.
var acting = words(`lowrite nextval setval ts_stat ts_rewrite unique_key_recheck heap_force_kill heap_force_freeze sepgsql_restorecon
	autoprewarm_start_worker autoprewarm_dump_now bt_index_parent_check`)

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}
