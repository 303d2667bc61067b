package policy

import (
	"strconv"
	"strings"

	pg_query "github.com/pganalyze/pg_query_go/v6"
)

func isFenceName(name string) bool { return strings.HasPrefix(strings.ToLower(name), "fence.") }

// fenceSet takes SET fence.election or SET fence.token.
func (j *judgement) fenceSet(s *pg_query.VariableSetStmt) {
	name := strings.ToLower(s.GetName())
	value, ok := constant(s.GetArgs())
	if s.GetKind() != pg_query.VariableSetKind_VAR_SET_VALUE || s.GetIsLocal() || !ok ||
		name != "fence.election" && name != "fence.token" {
		j.v.Fence = FenceMisused
		return
	}
	j.v.Set = append(j.v.Set, FenceSetting{Token: name == "fence.token", Value: value})
}

// set decides on SET and RESET.
func (j *judgement) set(s *pg_query.VariableSetStmt) {
	name := strings.ToLower(s.GetName())
	if !isASCII(s.GetName()) {
		// It may be another name to the server, see foldForeign.
		j.refuse(SQLSetting, name)
	}
	switch s.GetKind() {
	case pg_query.VariableSetKind_VAR_RESET_ALL:
		j.v.Resets = true
	case pg_query.VariableSetKind_VAR_SET_MULTI:
		switch name {
		case "transaction":
			j.transactionModes(s.GetArgs(), "set_transaction")
		case "session characteristics":
			j.v.SetsReadOnly = true
			j.v.AsksReadOnly = j.v.AsksReadOnly || readOnlyMode(s.GetArgs())
			j.transactionModes(s.GetArgs(), "session_characteristics")
		case "transaction snapshot":
		default:
			j.refuse(SQLSetting, name)
		}
	case pg_query.VariableSetKind_VAR_SET_VALUE:
		value, _ := constant(s.GetArgs())
		if name == "default_transaction_read_only" && !s.GetIsLocal() && isTrue(value) {
			j.v.AsksReadOnly = true
		}
		j.assign(name, value)
	case pg_query.VariableSetKind_VAR_RESET, pg_query.VariableSetKind_VAR_SET_DEFAULT:
		switch name {
		case "default_transaction_read_only":
			// Its start-up value is on, for the proxy made it so.
			j.v.Resets = true
		case "transaction_read_only":
			// Its reset value is off, whatever the session's default is.
			j.refuse(SQLLeavesReadOnly, name)
		case "standard_conforming_strings", "client_encoding":
			j.refuse(SQLSetting, name)
		default:
			j.acts(name)
		}
	default: // SET … FROM CURRENT belongs to CREATE FUNCTION
		j.refuse(SQLSetting, name)
	}
}

// assign decides on giving a setting a value, by SET or by set_config.
func (j *judgement) assign(name, value string) {
	switch name {
	case "default_transaction_read_only":
		j.v.SetsReadOnly = true
		if !isTrue(value) {
			j.refuse(SQLLeavesReadOnly, name)
		}
	case "transaction_read_only":
		if !isTrue(value) {
			j.refuse(SQLLeavesReadOnly, name)
		}
	case "standard_conforming_strings":
		// With it off a backslash quotes, and the parser would read another text.
		if !isTrue(value) {
			j.refuse(SQLSetting, name)
		}
	case "client_encoding":
		if UnsafeEncoding(value) {
			j.refuse(SQLSetting, name)
		}
	default:
		j.acts(name)
	}
}

// acts refuses a setting that acts.
func (j *judgement) acts(name string) {
	if SettingActs(name) {
		j.refuse(SQLSetting, name)
	}
}

// SettingActs reports whether the server, with a setting of this name in lower case, may
// write where it would only read, or runs what the setting names. Only superusers may
// set them, and superusers are never bound.
func SettingActs(name string) bool {
	switch name {
	case "zero_damaged_pages", "jit_dump_bitcode", // reading changes pages, writes files
		"dynamic_library_path", "session_preload_libraries", // what is loaded
		"plperl.on_plperl_init", "plperl.on_plperlu_init", "pltcl.start_proc", "pltclu.start_proc": // what is run
		return true
	}
	return false
}

// isTrue is stricter than the server: what it does not know is not true.
func isTrue(v string) bool {
	switch strings.ToLower(v) {
	case "on", "true", "yes", "1":
		return true
	}
	return false
}

// isFalse reports whether an option's argument is a literal no.
func isFalse(n *pg_query.Node) bool {
	if n == nil {
		return false
	}
	switch x := n.GetNode().(type) {
	case *pg_query.Node_String_:
		switch strings.ToLower(x.String_.GetSval()) {
		case "off", "false", "no", "0":
			return true
		}
	case *pg_query.Node_Integer:
		return x.Integer.GetIval() == 0
	case *pg_query.Node_Boolean:
		return !x.Boolean.GetBoolval()
	}
	return false
}

// constant returns the text of a single literal.
func constant(args []*pg_query.Node) (string, bool) {
	if len(args) != 1 {
		return "", false
	}
	return literal(args[0])
}

func literal(n *pg_query.Node) (string, bool) {
	switch v := n.GetAConst().GetVal().(type) {
	case *pg_query.A_Const_Sval:
		return v.Sval.GetSval(), true
	case *pg_query.A_Const_Ival:
		return strconv.Itoa(int(v.Ival.GetIval())), true
	case *pg_query.A_Const_Fval:
		return v.Fval.GetFval(), true
	case *pg_query.A_Const_Boolval:
		return strconv.FormatBool(v.Boolval.GetBoolval()), true
	}
	return "", false
}

// UnsafeEncoding reports whether a client encoding's characters may hold ASCII bytes,
// so that a backslash or a quote in a text need not be one. Names are compared as the
// server does, by their letters and digits.
func UnsafeEncoding(name string) bool {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if c := lower(name[i]); 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			b.WriteByte(c)
		}
	}
	switch b.String() {
	case "sjis", "shiftjis", "mskanji", "win932", "windows932", "shiftjis2004", "sjis2004",
		"big5", "win950", "windows950", "gbk", "win936", "windows936", "gb18030",
		"uhc", "win949", "windows949", "johab":
		return true
	}
	return false
}
