package policy

import (
	"strings"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// calls decides on m itself, if it is a function call or may be one: the server takes x.f
// for f(x) where x has no column f, whatever the type of x.
func (j *judgement) calls(m protoreflect.Message) {
	switch x := m.Interface().(type) {
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

// column decides on the last name of a column that may be a function. A column may well
// be called lo_price: of such names only the functions themselves are refused.
func (j *judgement) column(n *pg_query.Node) {
	name := n.GetString_().GetSval()
	for _, p := range columnPrefixes {
		if strings.HasPrefix(name, p) && !actingColumns[name] {
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
		// pg_dump takes the name from pg_settings. A list is no value of the settings
		// that matter here: no boolean, no encoding, no token.
		if len(args) == 3 {
			if v, ok := literal(args[1]); ok && strings.Contains(v, ",") && !UnsafeEncoding(v) {
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
	if strings.HasPrefix(name, "pg_") {
		for _, p := range readingPrefixes {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
		return strings.HasSuffix(name, "_is_visible") || readingSystem[name]
	}
	for _, p := range actingPrefixes {
		if strings.HasPrefix(name, p) {
			return readingAnyway[name]
		}
	}
	return !acting[name]
}

// readingPrefixes begin the names of system functions that only report.
var readingPrefixes = []string{"pg_get_", "pg_stat_get_", "pg_ls_", "pg_lsn_", "pg_snapshot_", "pg_control_", "pg_available_"}

// readingSystem are system functions that only report.
var readingSystem = words(`
pg_backend_pid pg_blocking_pids pg_char_to_encoding pg_client_encoding pg_collation_actual_version pg_collation_for
pg_column_compression pg_column_is_updatable pg_column_size pg_column_toast_chunk_id pg_basetype pg_conf_load_time pg_config
pg_current_logfile pg_current_snapshot pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn
pg_current_xact_id pg_current_xact_id_if_assigned pg_cursor pg_database_collation_actual_version pg_database_size
pg_describe_object pg_encoding_max_length pg_encoding_to_char pg_export_snapshot pg_extension_config_dump
pg_extension_update_paths pg_filenode_relation pg_has_role pg_hba_file_rules pg_ident_file_mappings pg_identify_object
pg_identify_object_as_address pg_index_column_has_property pg_index_has_property pg_indexam_has_property
pg_indexam_progress_phasename pg_indexes_size pg_input_error_info pg_input_is_valid pg_is_in_recovery pg_is_other_temp_schema
pg_is_wal_replay_paused pg_isolation_test_session_is_blocked pg_jit_available pg_last_committed_xact pg_last_wal_receive_lsn
pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_listening_channels pg_lock_status pg_lsn pg_mcv_list_items
pg_my_temp_schema pg_notification_queue_usage pg_options_to_table pg_partition_ancestors pg_partition_root pg_partition_tree
pg_postmaster_start_time pg_prepared_statement pg_prepared_xact pg_read_binary_file pg_read_file pg_relation_filenode
pg_relation_filepath pg_relation_is_publishable pg_relation_is_updatable pg_relation_size pg_replication_origin_oid
pg_replication_origin_progress pg_safe_snapshot_blocking_pids pg_sequence_last_value pg_sequence_parameters
pg_settings_get_flags pg_show_all_file_settings pg_show_all_settings pg_show_replication_origin_status pg_size_bytes
pg_size_pretty pg_sleep pg_sleep_for pg_sleep_until pg_split_walfile_name pg_stat_clear_snapshot pg_stat_file pg_stat_have_stats
pg_stat_statements pg_stat_statements_info pg_table_size pg_tablespace_databases pg_tablespace_location pg_tablespace_size
pg_timezone_abbrevs pg_timezone_names pg_total_relation_size pg_trigger_depth pg_typeof pg_visible_in_snapshot
pg_wal_lsn_diff pg_walfile_name pg_walfile_name_offset pg_xact_commit_timestamp pg_xact_commit_timestamp_origin pg_xact_status`)

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
var readingAnyway = words(`lo_get lo_open lo_close lo_lseek lo_lseek64 lo_tell lo_tell64`)

// acting are functions outside pg_… that write, or run their argument as SQL. Those of
// pg_surgery change rows in a read-only transaction too.
var acting = words(`lowrite nextval setval ts_stat ts_rewrite unique_key_recheck heap_force_kill heap_force_freeze`)

func words(s string) map[string]bool {
	m := make(map[string]bool)
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}
