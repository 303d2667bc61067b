// Command mutants takes the safety steps out of the code, one at a time, and checks that
// the test which is named for the step then fails. It is run from the module's root
// (make mutants), changes no file, and ends with 1 where a step went unmissed.
//
// It does not look for mistakes by itself: it proves that the tests look. An argument
// picks the steps whose names contain it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A mutant is one step taken out: in file, old becomes new.
type mutant struct {
	step     string
	file     string
	old, new string
	pkg      string
	test     string // a pattern for go test -run
}

var mutants = []mutant{
	{"sever", "guard/advance.go",
		"if refusal := k.sever(ctx, t); refusal != nil {", "if refusal := k.sever(ctx, t); refusal != nil && false {",
		"./guard", "TestEveryPause|TestModel|TestAdmit"},
	{"sever, in the race through two proxies", "guard/advance.go",
		"if refusal := k.sever(ctx, t); refusal != nil {", "if t.Number < 0 {\nrefusal := k.sever(ctx, t)",
		"./integration", "TestRedisNoLateWrites|TestPostgresNoLateWrites$"},
	{"wait for the exit", "guard/pgfence/sever.go",
		"timer := time.NewTimer(wait)", "if len(signalled) > 0 {\nreturn nil\n}\ntimer := time.NewTimer(wait)",
		"./guard/pgfence", "TestSeverWaitsForAStoppedProcess"},
	{"state in the fence", "guard/pgfence/pgfence.go",
		"return \"raised\"", "return \"severed\"",
		"./guard/pgfence", "TestSuite/postgres15/AnotherProxyFinishesTheSever"},
	{"lock at bind", "guard/pgfence/bind.go",
		"`LOCK TABLE fenceproxy.gate IN ROW SHARE MODE`", "`SELECT 1`",
		"./guard/pgfence", "TestRaiseWaitsForABindUnderWay"},
	{"lock at raise", "guard/pgfence/pgfence.go",
		"`LOCK TABLE fenceproxy.gate IN EXCLUSIVE MODE`", "`SELECT 1`",
		"./guard/pgfence", "TestRaiseWaitsForABindUnderWay|TestBindWaitsForARaiseUnderWay"},
	{"digest comparison", "guard/advance.go",
		"case rec.Highest == t.Number && rec.Holder != t.Digest:", "case t.Number < 0:",
		"./guard", "TestAdmitRefuses|TestModel"},
	{"digest comparison, at the bind", "guard/pgfence/pgfence.go",
		"highest = %d AND holder = %s AND state", "highest = %d AND %s IS NOT NULL AND state",
		"./guard/pgfence", "TestSuite"},
	{"proof of the Unix socket", "guard/pgfence/unix.go",
		"case p.Parent != b.Listener:", "case p.Parent < 0:",
		"./guard/pgfence", "TestUnixSocketIsProven"},
	{"proof of the Unix socket, of Redis", "protocols/resp/direct.go",
		"if pid != listener {", "if pid < 0 {",
		"./protocols/resp", "TestUnixSocketIsProven"},
	{"the start of the process that listens on the Unix socket", "protocols/resp/direct.go",
		"if d := p.Started.Sub(started); d < -peer.StartSlack || d > peer.StartSlack {", "if d := p.Started.Sub(started); d == 0 {",
		"./protocols/resp", "TestUnixSocketIsProven"},
	{"no bind by a Unix socket without the proof", "protocols/resp/shell.go",
		"if r := x.unproven(ctx, p.Term()); r != nil {", "if r := x.unproven(ctx, p.Term()); r != nil && r.Held < 0 {",
		"./protocols/resp", "TestUnixSocketIsProven"},
	{"a client's certificate where Redis listeners require it", "protocols/resp/legs.go",
		"&& len(t.ConnectionState().PeerCertificates) == 0 {", "&& len(t.ConnectionState().PeerCertificates) < 0 {",
		"./protocols/resp", "TestTLSClientCertificates"},
	{"the server's certificate verified", "protocols/tlsconf/client.go",
		"if mode := c.o.Mode; mode == VerifyCA || mode == VerifyFull {", "if mode := c.o.Mode; mode == \"\" {",
		"./protocols/tlsconf", "TestVerify"},
	{"the server's name verified", "protocols/tlsconf/client.go",
		"err != nil || mode == VerifyCA {", "err != nil || mode != \"\" {",
		"./protocols/tlsconf", "TestVerify"},
	{"no start-up packet without TLS where that is required", "protocols/pg/tls_client.go",
		"case !ok && (o.Required ||", "case !ok && (o.Required && false ||",
		"./protocols/pg", "TestTLSModes"},
	{"the user of the certificate", "protocols/pg/tls_client.go",
		"user == \"\" || len(user) > 63 || user != certs[0].Subject.CommonName", "user == certs[0].Subject.CommonName && false",
		"./protocols/pg", "TestTLSClientCertificates"},
	{"what cannot be parsed does not run", "protocols/pg/unparsed.go",
		"return append(out, c.marker(code(policy.SQLUnparsed), \"\")...), true", "return append(out, c.marker(code(policy.SQLUnparsed), \"\")[:0]...), true",
		"./protocols/pg", "TestReadersSyntaxErrors"},
	{"the functions that a reader may call by number", "protocols/pg/core_inspect.go",
		"case 952, 953, 954,", "case 952, 953, 954, 957,",
		"./protocols/pg", "TestReadingCalls|TestFunctionCalls"},
	{"a sidecar's sessions are bound outside a transaction only", "protocols/pg/sidecar.go",
		"c.status != 'I' || !c.followsLead()", "c.status == 'E' || !c.followsLead()",
		"./protocols/pg", "TestTranscripts"},
	{"a client's own credential, on a sidecar listener", "protocols/pg/sidecar.go",
		"\t\tc.lead = nil\n\t\treturn refused == nil", "\t\treturn refused == nil",
		"./protocols/pg", "TestTranscripts"},
	{"a client's own credential, on a sidecar listener of Redis", "protocols/resp/auth.go",
		"\t\tc.lead = nil // it has its own", "\t\t_ = c.lead",
		"./protocols/resp", "TestSidecarClientsOwnCredential"},
	{"rights check", "guard/pgfence/sever.go",
		"if err := f.checkRights(ctx); err != nil {", "if err := f.checkRights(ctx); err != nil && false {",
		"./guard/pgfence", "TestRightsAreCheckedBeforeTheyAreReliedOn|TestRightsLostDuringATakeover"},
	{"raise id", "guard/advance.go",
		"rand.Read(raised.Raise[:])", "_ = rand.Reader",
		"./guard", "TestEveryPause"},
	{"validate again after a raise", "guard/advance.go",
		"if refusal := k.again(ctx); refusal != nil {\n\t\t\treturn Record{}, refusal\n\t\t}\n\t\tif refusal := k.sever",
		"if refusal := k.sever",
		"./guard", "TestValidateAgainAfterRaise|TestEveryPause"},
	{"durable raise", "guard/pgfence/pgfence.go",
		"pg_catalog.set_config('synchronous_commit', 'on', true)", "pg_catalog.set_config('synchronous_commit', 'off', true)",
		"./guard/pgfence", "TestRaiseSurvivesACrash"},
	{"replicas swept too, Redis", "guard/redisfence/sever.go",
		"for i := 0; i < len(nodes); i++ { // it grows", "for i := 0; i < 1; i++ {",
		"./guard/redisfence", "TestSeverSweepsTheReplicasToo"},
	{"the node is a member, cluster", "guard/redisfence/cluster_confirm.go",
		"return members && value", "return (members || value != \"\") && value",
		"./guard/redisfence", "TestClusterConfirmNeedsAllThatItAsksFor"},
	{"the home at a bind, cluster", "guard/redisfence/cluster_confirm.go",
		"case record != Encode(r):\n\t\treturn false, fmt.Errorf(\"confirming: %w\", guard.ErrConflict)\n\tcase copyErr",
		"case record == \"-\":\n\t\treturn false, fmt.Errorf(\"confirming: %w\", guard.ErrConflict)\n\tcase copyErr",
		"./guard/redisfence", "TestClusterInterleavings|TestClusterSuite"},
	{"the copies at a bind on a primary without slots, cluster", "guard/redisfence/cluster_confirm.go",
		"err != nil {\n\t\treturn false, f.changed(", "err != nil && false {\n\t\treturn false, f.changed(",
		"./guard/redisfence", "TestClusterPrimaryWithoutSlots"},
	{"the copy at a bind, cluster", "guard/redisfence/cluster_confirm.go",
		"value == want && asking", "value != \"\" && asking",
		"./guard/redisfence", "TestClusterFailoverThatLosesTheRaise"},
	{"the witness at a bind, cluster", "guard/redisfence/cluster_confirm.go",
		"other == want, nil", "(other == want || other != \"\"), nil",
		"./guard/redisfence", "TestClusterFailoverThatLosesTheRaise"},
	{"all copies before a missing one is put, cluster", "guard/redisfence/cluster_confirm.go",
		"err == nil && n > r.Highest", "err == nil && n > r.Highest && n < 0",
		"./guard/redisfence", "TestClusterFailoverThatLosesTheRaise"},
	{"copies at a takeover, cluster", "guard/redisfence/cluster_sever.go",
		"return x.f.putAnywhere(ctx, x.t.Election, slot, x.record)", "return nil",
		"./guard/redisfence", "TestClusterFailoverThatLosesTheRaise"},
	{"members are swept, cluster", "guard/redisfence/cluster_sever.go",
		"m, err := x.f.members(ctx, x.t.Election)", "m, err := x.f.members(ctx, x.t.Election)\n\tm.nodes = nil",
		"./guard/redisfence", "TestClusterPrimaryUnknownToTheOthers"},
	{"replicas swept too, cluster", "guard/redisfence/cluster_sever.go",
		"err := x.f.sweepNode(ctx, n, x.t)\n", "var err error\n\t\tif n.Primary {\n\t\t\terr = x.f.sweepNode(ctx, n, x.t)\n\t\t}\n",
		"./guard/redisfence", "TestClusterFailoverThatLosesTheRaise"},
	{"sweep, cluster", "guard/redisfence/cluster_sever.go",
		"err := sweep(ctx, c, t, failed)", "var err error",
		"./guard/redisfence", "TestClusterInterleavings|TestClusterSuite"},
	{"a dead node is waited for, cluster", "guard/redisfence/cluster_sever.go",
		"!now.Answered && now.Failed &&", "!now.Answered &&",
		"./guard/redisfence", "TestClusterDeadNodes"},
	{"a dead primary with slots is waited for, cluster", "guard/redisfence/cluster_sever.go",
		"now.Failed && len(now.Slots) == 0 &&", "now.Failed &&",
		"./guard/redisfence", "TestClusterDeadNodes"},
	{"a node that returns is swept, cluster", "guard/redisfence/cluster_watch.go",
		"(!n.Answered || !f.returned(ctx, n, elections))", "!n.Answered",
		"./guard/redisfence", "TestClusterNodeThatReturnsIsSwept"},
	{"a session that ends in a long answer", "protocols/resp/served.go",
		"b[:max(0, min(n, c.flow.step.keeps()-len(s.kept)))]", "b[:min(n, c.flow.step.keeps()-len(s.kept))]",
		"./protocols/resp", "TestSessionEndsInALongAnswer"},
	{"an address of another cluster", "guard/rediscluster/topology.go",
		"err = errAnother", "err = nil",
		"./guard/rediscluster", "TestAddressOfAnotherCluster"},
	{"sever, in the race in a cluster", "guard/advance.go",
		"if refusal := k.sever(ctx, t); refusal != nil {", "if t.Number < 0 {\nrefusal := k.sever(ctx, t)",
		"./integration", "TestRedisClusterNoLateWrites"},
	{"replicas of replicas swept too, Redis", "guard/redisfence/sever.go",
		"return join(nodes, more)", "return join(nodes, more[:0])",
		"./guard/redisfence", "TestSeverSweepsReplicasOfReplicas"},
	{"a new primary is prepared before it is used", "guard/redissentinel/primary.go",
		"if p.o.Prepare != nil {", "if p.o.Prepare != nil && false {",
		"./guard/redissentinel", "TestPrepare"},
	{"older terms end on a new primary", "guard/redisfence/sentinel.go",
		"if n.Number < r.Highest ||", "if n.Number < 0 ||",
		"./guard/redisfence", "TestNewPrimaryIsPrepared"},
	{"what is connected to a former primary ends", "guard/redissentinel/primary.go",
		"for c := range p.conns {\n\t\t\t_ = c.TCPConn.Close()", "for c := range p.conns {\n\t\t\t_ = c",
		"./guard/redisfence", "TestSentinelFailover"},
	{"a server that is not down is waited for, Sentinel", "guard/redisfence/sever.go",
		"case ctx.Err() == nil && !isReply(err) && f.isDown(ctx, nodes[i]):", "case ctx.Err() == nil:",
		"./guard/redisfence", "TestSentinelReplicaThatCannotBeSwept"},
	{"nobody is sent past the proxy", "protocols/resp/judge.go",
		"raw[at] = '-'", "_ = at",
		"./protocols/resp", "TestNoRedirectionPastTheProxy"},
	{"nobody is led to a cluster's other nodes by a listener for one server", "protocols/resp/server.go",
		"if table.cluster == clustered && s.node == nil {", "if table.cluster == clustered && s.node != nil {",
		"./protocols/resp", "TestNodeOfAClusterBehindAListenerForOneServer"},
	{"no redirection of a server of which nobody knows whether it is a cluster's", "protocols/resp/clustercore.go",
		"if c.cfg.maybe {", "if c.cfg.maybe && false {",
		"./protocols/resp", "TestNodeOfAClusterBehindAListenerForOneServer"},
	{"own commands stay here, set up or not, Redis", "protocols/resp/judge.go",
		"\tcase OwnElection:\n\t\treturn electionCommand, true, 0\n", "",
		"./protocols/resp", "TestOwnCommandsStayHere"},
	{"own commands stay here, inside MULTI, Redis", "protocols/resp/own.go",
		"\tcase conn.multi:\n\t\tc.substitute(codeInMulti, cmd)", "\tcase conn.multi:\n\t\tc.up = append(c.up, raw...)",
		"./protocols/resp", "TestOwnCommandsStayHere"},
	{"own commands after every earlier reply, Redis", "protocols/resp/own.go",
		"c.flow = flow{call: &call{name: cmd.Name, args: args}, step: stepSettle, sentinel: c.sentinel()}",
		"c.flow = flow{call: &call{name: cmd.Name, args: args}}\n\t\tc.callShell()",
		"./protocols/resp", "TestOwnCommands$|FuzzSession"},
	{"own commands only for clients that can be told, Redis", "protocols/resp/own.go",
		"case conn.replyOff, conn.skipNext, conn.monitor:", "case conn.monitor:",
		"./protocols/resp", "TestTranscripts/own-wrong-time"},
	{"elections for allowed clients alone", "internal/electionapi/resp.go",
		"if !c.allowed {", "if !c.allowed && c.auth {",
		"./internal/electionapi", "TestWhoMay"},
	{"elections for those with the token alone", "internal/electionapi/resp.go",
		"if !c.auth || subtle.ConstantTimeCompare(sum[:], c.digest[:]) != 1 {", "if !c.auth || subtle.ConstantTimeCompare(sum[:], c.digest[:]) < 0 {",
		"./internal/electionapi", "TestWhoMay"},
	{"no election that a listener does not serve", "internal/electionapi/resp.go",
		"if c.c.Serves != nil && !c.c.Serves(id) {", "if c.c.Serves == nil && id == \"\" {",
		"./internal/electionapi", "TestWhoMay"},
	{"watchers are bounded", "internal/electionapi/watch.go",
		"if s.watchers >= s.c.MaxWatchers {", "if s.watchers < 0 {",
		"./internal/electionapi", "TestManyWatchers"},
	{"a watch looks anew for each that joins", "internal/electionapi/watch.go",
		"if !at.asked.Before(now) {", "if !at.asked.IsZero() {",
		"./internal/electionapi", "TestWatchKnowsWhatItsCallerKnows"},
	{"bind on a primary only, Redis", "protocols/resp/name.go",
		"case role != \"master\":", "case role == \"\":",
		"./protocols/resp", "TestNobodyBindsOnALaggingReplica"},
	{"the server's yes before a credential is used, Redis", "protocols/resp/flow.go",
		"if f.erred || f.hello && !f.aMap && !f.anArr || !f.hello && !f.ok {", "if f.erred {",
		"./protocols/resp", "TestTranscripts/auth-unanswered"},
	{"reserved names for leaders, too, Redis", "protocols/resp/judge.go",
		"case bytes.HasPrefix(name, []byte(redisfence.Prefix)):", "case c.bound == nil && bytes.HasPrefix(name, []byte(redisfence.Prefix)):",
		"./protocols/resp", "TestTranscripts/reserved-bound"},
	{"replies that were off until one has come, Redis", "protocols/resp/judge.go",
		"conn.replyOn = conn.replyOff && !conn.multi", "conn.replyOff = conn.replyOff && conn.multi",
		"./protocols/resp", "TestTranscripts/reply-on-refused"},
	{"messages opened by rule alone, Redis", "protocols/resp/judge.go",
		"c.cfg.publish && cmd != nil && cmd.Publishes():", "cmd != nil && cmd.Publishes():",
		"./protocols/resp", "TestPublishByRule"},
	{"the old permit while the core asks for another, Redis", "protocols/resp/shell.go",
		"(x.core.holds() || x.core.ask.kind == askAdmit)", "x.core.holds()",
		"./protocols/resp", "TestBindAfterEachFlush"},
	{"record comparison at the bind, Redis", "protocols/resp/name.go",
		"case bytes.Equal(last, appendBulk(nil, f.binding.value)):", "case bytes.HasPrefix(last, []byte(\"$\")):",
		"./protocols/resp", "TestTranscripts"},
	{"record comparison at the bind, in a cluster", "protocols/resp/name.go",
		"f.step = stepRecord\n\t\tc.ask = question{kind: askRecord}", "f.step = stepLive\n\t\tc.ask = question{kind: askLive}",
		"./protocols/resp", "TestClusterTranscripts|TestClusterCannotBeAsked"},
	{"the node that the bind is on, in a cluster", "protocols/resp/name.go",
		"case c.cfg.cluster != nil && !bytes.Equal(last, appendBulk(nil, c.cfg.cluster.id())):", "case c.cfg.cluster != nil && len(last) == 0:",
		"./protocols/resp", "TestClusterTranscripts"},
	{"bind on a primary only, in a cluster", "protocols/resp/name.go",
		"case role != \"master\" && c.cfg.cluster != nil:\n", "case role != \"master\" && c.cfg.cluster != nil && f.binding == nil:\n\tcase role != \"master\" && c.cfg.cluster == nil:\n",
		"./protocols/resp", "TestClusterTranscripts"},
	{"no bound session on a demoted node of a cluster", "protocols/resp/cluster.go",
		"if !n.Primary {\n", "if !n.Primary && n.ID == \"\" {\n",
		"./protocols/resp", "TestClusterFailover/redis7"},
	{"no address of a node in a redirection", "protocols/resp/clustercore.go",
		"if !ok {\n\t\treturn []byte(to.elsewhere())\n\t}\n\treturn redirect(", "if !ok {\n\t\treturn line\n\t}\n\treturn redirect(",
		"./protocols/resp", "TestClusterTranscripts"},
	{"no list of nodes that is not understood", "protocols/resp/clusterlist.go",
		"|| !r.relist(f.list, &v):", "|| !r.relist(f.list, &v) && false:",
		"./protocols/resp", "TestClusterTranscripts"},
	{"SCRAM: the proof", "protocols/pg/internal/scram/server.go",
		"if got := key.stored(); subtle", "if got := key.stored(); s == nil && subtle",
		"./protocols/pg/internal/scram", "TestFinalMessages"},
	{"SCRAM: the channel binding", "protocols/pg/internal/scram/server.go",
		"if subtle.ConstantTimeCompare([]byte(binding)", "if s == nil && subtle.ConstantTimeCompare([]byte(binding)",
		"./protocols/pg/internal/scram", "TestFinalMessages"},
	{"SCRAM: the nonce", "protocols/pg/internal/scram/server.go",
		"if subtle.ConstantTimeCompare([]byte(nonce)", "if s == nil && subtle.ConstantTimeCompare([]byte(nonce)",
		"./protocols/pg/internal/scram", "TestFinalMessages"},
	{"SCRAM: the server's signature", "protocols/pg/scram.go",
		"if err := m.client.Check(text, &m.verifier.ServerKey); err != nil {", "if err := m.client.Check(text, &m.verifier.ServerKey); err != nil && false {",
		"./protocols/pg", "TestScramServerThatCheats"},
	{"SCRAM: no login before the server's signature", "protocols/pg/scram.go",
		"case code == authOK && (c.sasl <= offered || c.sasl == vouched):", "case code == authOK:",
		"./protocols/pg", "TestScramServerThatCheats"},
	{"SCRAM: a superuser's verifier is not given out", "guard/pgfence/verifiers.go",
		"WHERE s.rolsuper AND", "WHERE false AND",
		"./guard/pgfence", "TestVerifiers"},
	{"nothing but the type of a statement that comes instead of a password", "protocols/pg/core_client.go",
		"return step{pass: i, write: []byte{typ, 0, 0, 0, 4}, next: stop}", "return step{pass: i + min(len(rest), 1+n), next: stop}",
		"./protocols/pg", "TestStatementInsteadOfPassword"},
	{"a session starts read-only, Postgres", "protocols/pg/startup.go",
		`"-c", "default_transaction_read_only=on")`, `"-c", "work_mem=4MB")`,
		"./protocols/pg", "TestStartsReadOnly|FuzzStartup"},
	{"a reader's statement is judged, Postgres", "protocols/pg/core_inspect.go",
		"case v.Reason != policy.SQLReads:", "case v.Reason != policy.SQLReads && size < 0:",
		"./protocols/pg", "TestTranscripts|FuzzSession"},
	{"a verdict is on its own text only, Postgres", "protocols/pg/core_inspect.go",
		"if c.judged.text != string(text) {", "if c.judged.text == \"\" {",
		"./protocols/pg", "TestLongTextsAreJudgedByTheShell"},
	{"no token in a text too long to be read, Postgres", "protocols/pg/core_inspect.go",
		"case scan(in[5:need])&hintFence != 0:", "case size < 0:",
		"./protocols/pg", "TestLongTextDoesNotSetATokenUpstream"},
	{"a reader's group waits for the one before, Postgres", "protocols/pg/core_client.go",
		"return (c.suspect || !c.isBound) && c.track.state() == willDrain", "return c.suspect && c.track.state() == willDrain",
		"./protocols/pg", "TestTranscripts|TestEscapes"},
	{"a session that became read-write is closed, Postgres", "protocols/pg/core_server.go",
		"if c.readOnly == off && !c.isBound {", "if c.readOnly == off && !c.isBound && false {",
		"./protocols/pg", "TestTranscripts|TestEscapes"},
	{"nothing after a FATAL, Postgres", "protocols/pg/core_server.go",
		"if c.ended {\n\t\t\treturn step{pass: i, drop: len(in) - i, next: read", "if c.ended && false {\n\t\t\treturn step{pass: i, drop: len(in) - i, next: read",
		"./protocols/pg", "TestTranscripts"},
	{"replication slots stay as they are", "protocols/pg/replication.go",
		`third.kind == 'w' && third.text == "TEMPORARY"`, "third.kind != 0",
		"./protocols/pg", "TestReplicates"},
	{"replication connections are not bound", "protocols/pg/admit.go",
		"if s.core.replication {", "if s.core.replication && false {",
		"./protocols/pg", "TestReplicationIsNotBound"},
	{"nobody is bound on a standby, Postgres", "protocols/pg/admit.go",
		"if standby {", "if standby && false {",
		"./protocols/pg", "TestNobodyBindsOnAStandby"},
	{"bind on the session's own server", "guard/pgfence/bind.go",
		"if b.Started == \"\" {", "if b.Started != \"?\" {",
		"./guard/pgfence", "TestSeveralServers"},
	{"mark on the server that was severed", "guard/pgfence/pgfence.go",
		"at != \"\" && old != (guard.Record{})", "at == \"?\" && old != (guard.Record{})",
		"./guard/pgfence", "TestMarkOnlyWhereSevered"},
	{"the fence on the primary of several servers", "guard/pgfence/pgfence.go",
		"if several(c.ConnConfig) && c.ConnConfig.ValidateConnect == nil {", "if several(c.ConnConfig) && c.ConnConfig.ValidateConnect != nil {",
		"./guard/pgfence", "TestSeveralServers"},
	{"only trusted peers say who connects", "protocols/proxyprotocol.go",
		"if !p.trusts(client.RemoteAddr()) {", "if !p.trusts(client.RemoteAddr()) && false {",
		"./protocols", "TestProxyHeaderOfAnUntrustedPeer"},
	{"one wait for all of a client's beginning", "protocols/pg/server.go",
		"_ = raw.SetDeadline(p.until)", "_ = raw.SetDeadline(time.Now().Add(s.cfg.StartupTimeout))",
		"./protocols/pg", "TestSlowClient"},
	{"clients out of reach are ended", "protocols/pg/idle.go",
		"if still.client.Look(s.client, s.cfg.KeepAlive, now) {", "if still.client.Look(s.client, s.cfg.KeepAlive, now) && false {",
		"./protocols/pg", "TestClientOutOfReach"},
	{"policy: a function pg_… that is not known acts", "policy/sql_functions.go",
		"return readingSystem[name]", "return readingSystem[name] || len(name) > 12",
		"./policy", "TestSQLRefused"},
	{"policy: names as the server folds them", "policy/sql_functions.go",
		"ok && !readsOnly(folded)", "ok && !readsOnly(folded) && false",
		"./policy", "TestSQLRefused"},
	{"policy: a column may be a function", "policy/sql_functions.go",
		"if f := x.GetFields(); len(f) > 1 {", "if f := x.GetFields(); len(f) > 9 {",
		"./policy", "TestSQLRefused"},
	{"policy: EXPLAIN ANALYZE runs", "policy/sql_judge.go",
		"\"analyze\") && !isFalse(d.GetArg())", "\"analyze\") && d.GetArg() == nil && len(s.GetOptions()) == 1",
		"./policy", "TestSQLRefused"},
	{"policy: statements within statements", "policy/sql_judge.go",
		"strings.HasSuffix(name, \"Stmt\")", "strings.HasSuffix(name, \"Statement\")",
		"./policy", "TestSQLRefused"},
	{"policy: what follows a COMMIT", "policy/sql_judge.go",
		"if j.loose && !ends && !readOnly {", "if j.loose && !ends && !readOnly && false {",
		"./policy", "TestSQLRefused"},
	{"policy: settings that are read-only's", "policy/sql_settings.go",
		"j.v.SetsReadOnly = true\n\t\tif !isTrue(value) {", "j.v.SetsReadOnly = true\n\t\tif value == \"off\" {",
		"./policy", "TestSQLRefused"},
	{"policy: dollar quotes as the server ends them", "policy/sql.go",
		"if mayQuoteForeign(sql) && quotesForeign(sql) {", "if mayQuoteForeign(sql) && quotesForeign(sql) && false {",
		"./policy", "TestSQLForeignTags"},
	{"policy: no text with a token is remembered", "policy/sql.go",
		"if v.Fence == FenceUnused && v.Reason < SQLUnparsed && !containsFold(text, \"fence\") {", "if v.Reason < SQLUnparsed {",
		"./policy", "TestSQLFence"},
	{"policy: the cache's bound", "policy/sql_cache.go",
		"if c.bytes+n > c.limit {", "if c.bytes+n > 64*c.limit {",
		"./policy", "TestSQLCacheIsBounded"},
	{"live permit before each forward, Postgres", "protocols/pg/session.go",
		"if permit != nil && !permit.Live() {", "if permit != nil && !permit.Live() && false {",
		"./protocols/pg", "TestDeadPermitWithoutNoticeWritesNothing"},
	{"live permit before each forward, Redis", "protocols/resp/shell.go",
		"if p != nil && !p.Live() {", "if p != nil && !p.Live() && false {",
		"./protocols/resp", "TestNoByteAfterThePermit"},
	{"election: a replica does not answer, Redis", "election/redis/scripts.go",
		"#!lua flags=allow-oom\\n", "#!lua flags=no-writes\\n",
		"./election/redis", "TestReplicaNeverAnswers"},
	{"election: a lease without an end is none, Redis", "election/redis/lease.go",
		"case !ok || ms == -1 ||", "case !ok ||",
		"./election/redis", "TestCorrupt"},
	{"election: a call that is cut ends, Redis", "election/redis/lane.go",
		"if l.end != nil {", "if l.end != nil && false {",
		"./election/redis", "TestEndedWhereverItIs"},
	{"election: a standby does not answer, Postgres", "election/postgres/calls.go",
		"case standby:", "case standby && false:",
		"./election/postgres", "TestCrashAndStandby"},
	{"election: nothing is prepared in a pooler's session, Postgres", "election/postgres/database.go",
		"err == nil && pid == c.PgConn().PID()", "err == nil && pid > 0",
		"./election/postgres", "TestPrepared$"},
	{"a gate's lease kept until its consumer cannot trust it", "guard/gate_binding.go",
		"t := time.NewTimer(time.Until(b.trust()) + b.g.margin())", "t := time.NewTimer(0)",
		"./guard", "TestGateModel|TestGateEvictsAStaleConsumer"},
	{"the same, of a gate that closes", "guard/gate_binding.go",
		"return false // it runs out", "return true // it runs out",
		"./guard", "TestGateRefuses"},
	{"a gate's lease", "guard/gate_lease.go",
		"case res.Status != election.Busy:", "case res.Status == election.Busy && asked > 0:\nreturn asked, 1, nil\ncase res.Status != election.Busy:",
		"./guard", "TestGateModel"},
	{"a gate's trust from before its question", "guard/gate_lease.go",
		"return asked, res.Number, nil", "return time.Since(b.g.epoch), res.Number, nil",
		"./guard", "TestGateTrustsFromBeforeTheQuestion"},
	{"a gate's trust from before its renewal", "guard/gate_lease.go",
		"b.extend(asked + b.g.c.PermitFor", "b.extend(time.Since(b.g.epoch) + 0*asked + b.g.c.PermitFor",
		"./guard", "TestGateTrustsFromBeforeTheQuestion"},
	{"validate again after a gate's lease", "guard/gate_lease.go",
		"if r := b.permit.k.again(ctx); r != nil {", "if r := b.permit.k.ended(); r != nil {",
		"./guard", "TestGateValidatesAgainAfterItsLease"},
	{"no extension of a binding that ran out", "guard/gate_lease.go",
		"if !b.Live() {\n\t\treturn\n\t}", "if false {\n\t\treturn\n\t}",
		"./guard", "TestGateExtendsNothingThatRanOut"},
	{"a gate's binding within its consumer's lease", "guard/gate_binding.go",
		"if p := b.permit.TrustedUntil(); p.Before(until) {", "if p := b.permit.TrustedUntil(); p.Before(until) && false {",
		"./guard", "TestGateEndsWithItsConsumersLease"},
	{"a gate's highest number", "guard/gate.go",
		"if r == nil && highest > b.term.Number {", "if r == nil && highest > b.term.Number && false {",
		"./guard", "TestGateRefusesALowerNumber"},
	{"the end looked at after the trust is read", "guard/gate_binding.go",
		"if !b.Live() {\n\t\treturn time.Time{}", "if false {\n\t\treturn time.Time{}",
		"./guard", "TestGateEvictsAStaleConsumer"},
	{"no release before what a consumer was told is over", "internal/gateapi/kept.go",
		"return max(d, time.Until(k.told)+k.g.Config().PermitFor/10), k.listeners == 0", "return d, k.listeners == 0",
		"./internal/gateapi", "TestAConsumerThatIsGone"},
	{"time counted from when the request came", "internal/gateapi/gateapi.go",
		"}{until.Sub(came).Milliseconds()}) != nil {", "}{time.Until(until).Milliseconds() + 0*int64(time.Since(came))}) != nil {",
		"./internal/gateapi", "TestBindKeepRelease"},
	{"the hold of an exclusive listener's session", "guard/permit.go",
		"if p.hold != nil {\n\t\treturn p.hold.b.Live()\n\t}", "if p.hold != nil && p.hold.users < 0 {\n\t\treturn p.hold.b.Live()\n\t}",
		"./guard", "TestExclusiveHoldIsLost"},
	{"only bound sessions where that is required, Postgres", "protocols/pg/core.go",
		"case c.phase == settling && c.required:", "case c.phase == settling && c.required && false:",
		"./protocols/pg", "TestCoreTurnsAway"},
	{"only bound sessions where that is required, Redis", "protocols/resp/judge.go",
		"if c.barred(cmd) {\n\t\treturn codeBarred\n\t}", "if c.barred(cmd) && false {\n\t\treturn codeBarred\n\t}",
		"./protocols/resp", "TestRequiredTranscripts"},
	{"the same, of commands that need more than a verdict", "protocols/resp/judge.go",
		"cmd.verb != verbNone && !c.barred(cmd) && c.special", "cmd.verb != verbNone && c.special",
		"./protocols/resp", "TestRequiredTranscripts"},
	{"protection: no proof without the key", "guard/pgfence/proof.go",
		"sha256(k.key || pg_catalog.sha256(k.key || ", "sha256(''::bytea || pg_catalog.sha256(''::bytea || ",
		"./guard/pgfence", "TestProofServesNobodyElse/postgres15"},
	{"protection: a proof is of a process that started once", "guard/pgfence/proof.go",
		"(extract(epoch FROM %s) * 1000000)::bigint", "(extract(epoch FROM %s) * 0)::bigint",
		"./guard/pgfence", "TestProofServesNobodyElse/postgres15"},
	{"protection: a proof is of one election", "guard/pgfence/proof.go",
		"|| '/' || %s, 'UTF8'", "|| '/' || left(%s, 0), 'UTF8'",
		"./guard/pgfence", "TestProofServesNobodyElse/postgres15"},
	{"protection: nobody else sets what a process has proven", "guard/pgfence/protect_sql.go",
		"EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM %s', t.name, t.grantee);", "NULL;",
		"./guard/pgfence", "TestNobodyReadsTheKey"},
	{"protection: the trigger searches no path", "guard/pgfence/protect_sql.go",
		"LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp\nAS $fenceproxy_function$\nDECLARE\n\tgiven", "LANGUAGE plpgsql\nAS $fenceproxy_function$\nDECLARE\n\tgiven",
		"./guard/pgfence", "TestNobodyReadsTheKey"},
	{"protection: the schema fenceproxy is nobody else's, whatever the default privileges are", "guard/pgfence/install.go",
		"EXECUTE pg_catalog.format('REVOKE %s FROM %s', t.what,", "PERFORM pg_catalog.format('REVOKE %s FROM %s', t.what,",
		"./guard/pgfence", "TestInstallKeepsItsTablesPrivate|TestNobodyReadsTheKey"},
	{"protection: a trigger for each row where rows come by another table", "guard/pgfence/protect_sql.go",
		"(r.always OR c.otherwise)", "r.always",
		"./guard/pgfence", "TestProtectPartitions/postgres15"},
	{"protection: proofs are set again after a reset", "protocols/pg/core_client.go",
		"lostProofs := c.reset && len(c.proofs) > 0", "lostProofs := c.reset && len(c.proofs) < 0",
		"./protocols/pg", "TestTranscripts"},
}

func main() {
	caught, failed := 0, 0
	for _, m := range mutants {
		if len(os.Args) > 1 && !strings.Contains(m.step, os.Args[1]) {
			continue
		}
		start := time.Now()
		err := try(m)
		if err != nil {
			failed++
			fmt.Printf("MISSED  %-45s %v\n", m.step, err)
			continue
		}
		caught++
		fmt.Printf("caught  %-45s by %s in %s (%.0fs)\n", m.step, m.test, m.pkg, time.Since(start).Seconds())
	}
	fmt.Printf("%d passed, %d failed\n", caught, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

// source returns the file of the step, which must be in it once, below the module's root.
func (m mutant) source(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("the step is found %d times in %s: bring this table up to date", n, m.file)
	}
	return string(text), nil
}

// try reports nil when the test fails with the step taken out.
func try(m mutant) error {
	text, err := m.source(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fenceproxy-mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(changed, []byte(strings.Replace(text, m.old, m.new, 1)), 0o600); err != nil {
		return err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return err
	}
	replace := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(replace, overlay, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command("go", "vet", "-overlay", replace, m.pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("the mutant does not compile: %s", out)
	}
	out, err := exec.Command("go", "test", "-overlay", replace, "-count=1", "-timeout", "5m", "-run", m.test, m.pkg).CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s in %s passes without it", m.test, m.pkg)
	case !strings.Contains(string(out), "--- FAIL: ") && !strings.Contains(string(out), "panic: "):
		return fmt.Errorf("the test did not run: %s", out)
	}
	return nil
}
