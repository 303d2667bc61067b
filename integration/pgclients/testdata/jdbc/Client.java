import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.copy.CopyIn;
import org.postgresql.copy.CopyManager;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;
import org.postgresql.util.PGobject;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/** The PostgreSQL JDBC driver; see script in transcript_test.go for the modes. */
public class Client {
  static final String TOKEN = System.getenv("FENCE_TOKEN");

  interface Action {
    Object run() throws Exception;
  }

  static String failure(SQLException e) {
    String s = e.getClass().getName() + " " + e.getSQLState() + " ";
    ServerErrorMessage m = e instanceof PSQLException ? ((PSQLException) e).getServerErrorMessage() : null;
    if (m == null) return s + e.getMessage();
    return s + m.getMessage() + " | " + m.getSeverity() + " " + m.getDetail() + " " + m.getHint() + " " + m.getPosition() + " "
        + m.getTable() + " " + m.getConstraint() + " " + m.getWhere();
  }

  static void show(String what, Action f) throws Exception {
    try {
      String got = String.valueOf(f.run());
      if (got.length() > 2000) {
        got = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(got.getBytes(StandardCharsets.UTF_8)));
      }
      System.out.println(what + ": " + got);
    } catch (BatchUpdateException e) {
      System.out.println(what + ": " + failure(e) + " " + Arrays.toString(e.getUpdateCounts()) + " / " + (e.getNextException() == null ? null : failure(e.getNextException())));
    } catch (SQLException e) {
      System.out.println(what + ": " + failure(e));
    }
  }

  static Connection open(String... properties) throws SQLException {
    Properties p = new Properties();
    p.setProperty("user", System.getenv("PGUSER"));
    p.setProperty("sslmode", System.getenv("PGSSLMODE"));
    if (System.getenv("PGPASSWORD") != null) p.setProperty("password", System.getenv("PGPASSWORD"));
    if (System.getenv("PGSSLROOTCERT") != null) p.setProperty("sslrootcert", System.getenv("PGSSLROOTCERT"));
    if (!TOKEN.isEmpty() && !Arrays.asList(properties).contains("options")) p.setProperty("options", "-c fence.token=" + TOKEN);
    for (int i = 0; i < properties.length; i += 2) {
      if (properties[i + 1].isEmpty()) p.remove(properties[i]);
      else p.setProperty(properties[i], properties[i + 1]);
    }
    return DriverManager.getConnection("jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE"), p);
  }

  static String rows(ResultSet rs) throws SQLException {
    StringBuilder b = new StringBuilder();
    int n = rs.getMetaData().getColumnCount();
    while (rs.next()) {
      b.append('(');
      for (int i = 1; i <= n; i++) {
        Object o = rs.getObject(i);
        b.append(i > 1 ? ", " : "").append(o instanceof byte[] ? HexFormat.of().formatHex((byte[]) o) : o).append(o == null ? "" : ":" + o.getClass().getSimpleName());
      }
      b.append(')');
    }
    return b.toString();
  }

  static String query(Connection c, String sql, Object... args) throws SQLException {
    try (PreparedStatement s = c.prepareStatement(sql)) {
      for (int i = 0; i < args.length; i++) s.setObject(i + 1, args[i]);
      return rows(s.executeQuery());
    }
  }

  static int update(Connection c, String sql, Object... args) throws SQLException {
    try (PreparedStatement s = c.prepareStatement(sql)) {
      for (int i = 0; i < args.length; i++) s.setObject(i + 1, args[i]);
      return s.executeUpdate();
    }
  }

  static String warnings(SQLWarning w) {
    StringBuilder b = new StringBuilder();
    for (; w != null; w = w.getNextWarning()) b.append(w.getSQLState()).append(' ').append(w.getMessage()).append("; ");
    return b.toString();
  }

  static void reads(Connection c) throws Exception {
    show("metadata", () -> c.getMetaData().getDatabaseProductName() + " " + c.getMetaData().getDatabaseMajorVersion() + " " + c.isReadOnly() + " " + c.getTransactionIsolation());
    show("tables", () -> rows(c.getMetaData().getTables(null, "public", "%", new String[] {"TABLE"})));
    show("columns", () -> rows(c.getMetaData().getColumns(null, "public", "t", "%")));
    show("keys", () -> rows(c.getMetaData().getPrimaryKeys(null, "public", "t")));
    show("types", () -> query(c, "select 1, 2::bigint, 1.5::float8, 12345678901234567890.123456789::numeric, 'text', null, true, '\\x00ff'::bytea,"
        + " array[1, null, 3], array[['a', 'b'], ['c', null]], '{\"a\": [1, null]}'::jsonb, '2020-02-29'::date, '2020-02-29 12:34:56.789+00'::timestamptz,"
        + " '12:34'::time, '1 day 2 hours'::interval, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, int4range(1, 5), '(1,2)'::point"));
    PGobject json = new PGobject();
    json.setType("jsonb");
    json.setValue("{\"k\": [1]}");
    show("parameters", () -> query(c, "select ?::int, ?::text, ?::bytea, ?::numeric, ?::date, ?::timestamptz, ?::uuid, ?::jsonb", 1, "it's", new byte[] {0, -1}, new BigDecimal("1.10"),
        LocalDate.of(2020, 1, 2), OffsetDateTime.of(2020, 1, 2, 3, 4, 5, 0, ZoneOffset.UTC), new UUID(0, 5), json));
    show("array", () -> query(c, "select ?::int[]", c.createArrayOf("int4", new Object[] {1, null, 2})));
    show("often", () -> {
      StringBuilder b = new StringBuilder();
      try (PreparedStatement s = c.prepareStatement("select id, name, n from t where id = ?")) {
        for (int i = 1; i < 12; i++) {
          s.setInt(1, i);
          b.append(rows(s.executeQuery()));
        }
      }
      return b;
    });
    show("description", () -> {
      try (PreparedStatement s = c.prepareStatement("select id, name, n from t where id = ?")) {
        ResultSetMetaData m = s.getMetaData();
        return m.getColumnName(1) + m.getColumnTypeName(1) + m.isNullable(1) + m.getTableName(1) + m.getPrecision(3) + s.getParameterMetaData().getParameterTypeName(1);
      }
    });
    show("several", () -> {
      StringBuilder b = new StringBuilder();
      try (Statement s = c.createStatement()) {
        boolean rs = s.execute("select 1; select 'two'; set application_name = 'x'; select 3 where false");
        while (rs || s.getUpdateCount() >= 0) {
          b.append(rs ? rows(s.getResultSet()) : String.valueOf(s.getUpdateCount())).append('/');
          rs = s.getMoreResults();
        }
      }
      return b;
    });
    show("divide", () -> query(c, "select 1 / ?::int", 0));
    show("nowhere", () -> query(c, "select * from nowhere"));
    show("bad value", () -> query(c, "select ?::int", "x"));
    show("fetch size", () -> {
      c.setAutoCommit(false);
      try (PreparedStatement s = c.prepareStatement("select i from generate_series(1, 5000) i")) {
        s.setFetchSize(7);
        long sum = 0;
        try (ResultSet rs = s.executeQuery()) {
          while (rs.next()) sum += rs.getInt(1);
        }
        return sum;
      } finally {
        c.commit();
        c.setAutoCommit(true);
      }
    });
    show("scrolling", () -> {
      try (Statement s = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY); ResultSet rs = s.executeQuery("select id from t order by id")) {
        rs.last();
        int last = rs.getInt(1);
        rs.absolute(2);
        return last + " " + rs.getInt(1);
      }
    });
    CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
    show("copy out", () -> {
      StringWriter w = new StringWriter();
      long n = copy.copyOut("copy (select id, name from t order by id) to stdout with (format csv)", w);
      return n + " " + w;
    });
    show("large", () -> query(c, "select length(?), md5(?)", "x".repeat(3000000), "y".repeat(3000000)));
    show("large back", () -> query(c, "select repeat('z', 3000000)").length());
    show("read only", () -> {
      c.setReadOnly(true);
      c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
      c.setAutoCommit(false);
      try {
        return query(c, "select count(*), current_setting('transaction_isolation'), current_setting('transaction_read_only') from t");
      } finally {
        c.rollback();
        c.setAutoCommit(true);
        c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
      }
    });
    show("schema", () -> c.getSchema() + " " + c.getCatalog() + " " + c.getClientInfo("ApplicationName"));
    show("valid", () -> c.isValid(10));
    show("parameter status", () -> c.unwrap(PGConnection.class).getParameterStatus("TimeZone") + c.unwrap(PGConnection.class).getParameterStatus("server_encoding"));
    // Last: for one cancel the server signals its process twice, and the second may come late.
    show("cancel", () -> {
      try (Statement s = c.createStatement()) {
        Thread t = new Thread(() -> {
          String asleep = "select 1 from pg_stat_activity where wait_event = 'PgSleep' and pid = ?";
          try (Connection other = open()) {
            while (query(other, asleep, c.unwrap(PGConnection.class).getBackendPID()).isEmpty()) {}
            s.cancel();
          } catch (Exception e) {
            System.out.println(e);
          }
        });
        t.start();
        try {
          return rows(s.executeQuery("select pg_sleep(600)"));
        } finally {
          t.join();
        }
      }
    });
    show("next", () -> query(c, "select 'next'"));
    show("query timeout", () -> {
      try (Statement s = c.createStatement()) {
        s.setQueryTimeout(1);
        return rows(s.executeQuery("select pg_sleep(600)"));
      }
    });
    show("next", () -> query(c, "select 'next'"));
  }

  static void session() throws Exception {
    try (Connection c = open()) {
      show("create", () -> update(c, "drop table if exists t") + update(c,
          "create table t (id int primary key constraint positive check (id > 0), name text, raw bytea, n numeric(12,3), tags text[], doc jsonb, at timestamptz)"));
      show("insert", () -> query(c, "insert into t values (?, ?, ?, ?, ?, ?::jsonb, ?) returning *", 1, "one", new byte[] {0, 1, -2}, new BigDecimal("1.5"),
          c.createArrayOf("text", new Object[] {"a", null, "c"}), "{\"a\": null}", OffsetDateTime.of(2020, 1, 1, 0, 0, 0, 0, ZoneOffset.UTC)));
      show("null", () -> {
        try (PreparedStatement s = c.prepareStatement("insert into t (id, name, n) values (?, ?, ?)")) {
          s.setInt(1, 2);
          s.setNull(2, Types.VARCHAR);
          s.setBigDecimal(3, BigDecimal.TEN);
          return s.executeUpdate();
        }
      });
      show("generated keys", () -> {
        try (PreparedStatement s = c.prepareStatement("insert into t (id) values (3)", new String[] {"id", "name"})) {
          s.executeUpdate();
          return rows(s.getGeneratedKeys());
        }
      });
      show("duplicate", () -> update(c, "insert into t (id) values (?)", 1));
      show("check", () -> update(c, "insert into t (id) values (?)", -1));
      show("batch", () -> batch(c, 10, 2000));
      show("batch that fails", () -> batch(c, 1, 5));
      show("count", () -> query(c, "select count(*) from t"));
      show("savepoint", () -> {
        c.setAutoCommit(false);
        update(c, "update t set name = 'in' where id = 1");
        Savepoint a = c.setSavepoint("a");
        show("inside", () -> update(c, "insert into t (id) values (1)"));
        show("aborted", () -> query(c, "select 1"));
        c.rollback(a);
        String got = query(c, "select name from t where id = 1");
        c.commit();
        update(c, "delete from t");
        c.rollback();
        c.setAutoCommit(true);
        return got;
      });
      show("read only", () -> {
        c.setReadOnly(true);
        try {
          return update(c, "insert into t (id) values (9999)");
        } finally {
          c.setReadOnly(false);
        }
      });
      show("updatable", () -> {
        try (Statement s = c.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_UPDATABLE); ResultSet rs = s.executeQuery("select id, name from t where id = 2")) {
          rs.next();
          rs.updateString("name", "updated");
          rs.updateRow();
        }
        return query(c, "select name from t where id = 2");
      });
      show("function", () -> {
        try (Statement s = c.createStatement()) {
          s.execute("create or replace function twice(i int) returns int language sql as 'select $1 * 2';"
              + "create or replace procedure note(inout m text) language plpgsql as 'begin m := m || ''!''; raise notice ''noted %'', m; end'");
        }
        try (CallableStatement f = c.prepareCall("{? = call twice(?)}"); CallableStatement p = c.prepareCall("call note(?)")) {
          f.registerOutParameter(1, Types.INTEGER);
          f.setInt(2, 21);
          f.execute();
          p.setString(1, "hi");
          p.registerOutParameter(1, Types.VARCHAR);
          p.execute();
          return f.getInt(1) + p.getString(1) + warnings(p.getWarnings());
        }
      });
      CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
      show("copy in", () -> {
        StringBuilder b = new StringBuilder();
        for (int i = 10000; i < 12000; i++) b.append(i).append(",c\n");
        return copy.copyIn("copy t (id, name) from stdin with (format csv)", new StringReader(b.toString()));
      });
      show("copy in that fails", () -> copy.copyIn("copy t (id) from stdin", new StringReader("20000\n1\n")));
      show("copy in, given up", () -> {
        CopyIn in = copy.copyIn("copy t (id) from stdin");
        in.writeToCopy("20001\n".getBytes(), 0, 6);
        in.cancelCopy();
        return in.isActive();
      });
      show("count", () -> query(c, "select count(*) from t"));
      // Large objects go by FunctionCall messages.
      show("large object", () -> {
        c.setAutoCommit(false);
        LargeObjectManager m = c.unwrap(PGConnection.class).getLargeObjectAPI();
        long oid = m.createLO();
        try (LargeObject lo = m.open(oid)) {
          byte[] b = new byte[1000000];
          Arrays.fill(b, (byte) 7);
          lo.write(b);
          lo.seek(500000);
          lo.truncate(700001);
          byte[] back = lo.read(1000000);
          lo.seek(0, LargeObject.SEEK_END);
          return back.length + " " + lo.tell();
        } finally {
          m.unlink(oid);
          c.commit();
          c.setAutoCommit(true);
        }
      });
      show("no such large object", () -> {
        c.setAutoCommit(false);
        try {
          return c.unwrap(PGConnection.class).getLargeObjectAPI().open(1);
        } finally {
          c.rollback();
          c.setAutoCommit(true);
        }
      });
      show("notices", () -> {
        try (Statement s = c.createStatement()) {
          s.execute("do $$ begin raise notice 'hello' using hint = 'h'; raise warning 'careful'; end $$");
          return warnings(s.getWarnings());
        }
      });
      show("notify", () -> {
        StringBuilder b = new StringBuilder();
        try (Statement s = c.createStatement(); Connection other = open()) {
          s.execute("listen l");
          s.execute("notify l, 'payload'");
          try (Statement o = other.createStatement()) {
            o.execute("notify l, 'of another'");
          }
          PGConnection pg = c.unwrap(PGConnection.class);
          for (int n = 0; n < 2; ) {
            PGNotification[] got = pg.getNotifications(1000);
            for (PGNotification x : got == null ? new PGNotification[0] : got) {
              b.append(x.getName()).append(' ').append(x.getParameter()).append(' ').append(x.getPID() == pg.getBackendPID()).append("; ");
              n++;
            }
          }
        }
        return b;
      });
      reads(c);
      show("write", () -> update(c, "update t set name = 'w' where id = 1"));
      c.close();
      show("closed", () -> query(c, "select 1"));
    }
    for (Map.Entry<String, String[]> v : variants().entrySet()) {
      try (Connection c = open(v.getValue())) {
        System.out.println(v.getKey());
        show("often", () -> {
          StringBuilder b = new StringBuilder();
          for (int i = 1; i < 9; i++) b.append(query(c, "select name, n from t where id = ?", i)).append(update(c, "update t set n = n + ? where id = ?", 1, i));
          return b;
        });
        show("batch", () -> batch(c, 50000, 100) + update(c, "delete from t where id >= 50000"));
        show("batch that fails", () -> batch(c, 1, 5));
        show("autosave", () -> {
          c.setAutoCommit(false);
          show("fails", () -> update(c, "insert into t (id) values (1)"));
          show("goes on", () -> query(c, "select count(*) from t"));
          c.commit();
          c.setAutoCommit(true);
          return "";
        });
        show("several", () -> {
          try (Statement s = c.createStatement()) {
            s.execute("insert into t (id) values (60000); select 1 / 0");
            return "";
          }
        });
        show("count", () -> query(c, "select count(*) from t"));
      }
    }
    try (Connection c = open()) {
      show("written", () -> update(c, "insert into written values ('session')"));
    }
    System.out.println("done");
  }

  static Map<String, String[]> variants() {
    return new java.util.TreeMap<>(Map.of(
        "simple", new String[] {"preferQueryMode", "simple"},
        "extended for prepared", new String[] {"preferQueryMode", "extendedForPrepared"},
        "cache everything", new String[] {"preferQueryMode", "extendedCacheEverything", "prepareThreshold", "1"},
        "prepared at once, in binary", new String[] {"prepareThreshold", "-1"},
        "never prepared", new String[] {"prepareThreshold", "0"},
        "rewritten batches", new String[] {"reWriteBatchedInserts", "true"},
        "autosave", new String[] {"autosave", "always"},
        "default fetch size", new String[] {"defaultRowFetchSize", "3", "binaryTransfer", "false"}));
  }

  static String batch(Connection c, int from, int n) throws SQLException {
    try (PreparedStatement s = c.prepareStatement("insert into t (id, name) values (?, ?)")) {
      for (int i = 0; i < n; i++) {
        s.setInt(1, from + i);
        s.setString(2, "b" + i);
        s.addBatch();
      }
      int sum = 0;
      for (int i : s.executeBatch()) sum += i;
      return sum + " of " + n;
    }
  }

  static void read() throws Exception {
    try (Connection c = open()) {
      reads(c);
    }
    for (Map.Entry<String, String[]> v : variants().entrySet()) {
      try (Connection c = open(v.getValue())) {
        System.out.println(v.getKey());
        show("often", () -> {
          StringBuilder b = new StringBuilder();
          for (int i = 1; i < 9; i++) b.append(query(c, "select name, n from t where id = ?", i));
          return b;
        });
      }
    }
    System.out.println("done");
  }

  static void attempt(Connection c, String what, Action f) throws Exception {
    try {
      System.out.println(what + " passed: " + f.run());
    } catch (SQLException e) {
      System.out.println(what + " " + e.getClass().getName() + " " + e.getSQLState() + " " + e.getMessage().lines().findFirst().get().replace("ERROR: ", ""));
    }
    if (!c.getAutoCommit()) c.rollback();
    if (!query(c, "select 1").equals("(1:Integer)")) System.out.println("out of step");
  }

  static void refused() throws Exception {
    try (Connection c = open(); Statement s = c.createStatement()) {
      attempt(c, "statement", () -> s.executeUpdate("insert into written values ('stale')"));
      for (int i = 0; i < 7; i++) attempt(c, "prepared", () -> update(c, "insert into written values (?)", "stale"));
      attempt(c, "several", () -> s.execute("select 1; delete from written; select 2"));
      attempt(c, "copy", () -> c.unwrap(PGConnection.class).getCopyAPI().copyIn("copy written from stdin", new StringReader("stale\n")));
      attempt(c, "notify", () -> s.execute("notify l"));
      attempt(c, "call", () -> s.execute("call note('x')"));
      c.setAutoCommit(false);
      attempt(c, "block", () -> update(c, "insert into written values (?)", "stale"));
      attempt(c, "large object", () -> c.unwrap(PGConnection.class).getLargeObjectAPI().createLO());
      c.setAutoCommit(true);
      attempt(c, "read write", () -> s.execute("set session characteristics as transaction read write"));
    }
    try (Connection c = open("preferQueryMode", "simple")) {
      attempt(c, "simple", () -> update(c, "insert into written values (?)", "stale"));
    }
    // A batch tells of the entry that failed; the server's error is behind it.
    for (String rewrite : new String[] {"false", "true"}) {
      try (Connection c = open("reWriteBatchedInserts", rewrite); PreparedStatement s = c.prepareStatement("insert into written values (?)")) {
        for (int i = 0; i < 3; i++) {
          s.setString(1, "stale");
          s.addBatch();
        }
        attempt(c, "batch", () -> {
          try {
            return s.executeBatch();
          } catch (BatchUpdateException e) {
            throw e.getNextException();
          }
        });
      }
    }
    System.out.println("done");
  }

  static void status(String what, Connection c) throws SQLException {
    System.out.println((what + ": " + one(c, "show fence.status") + " " + one(c, "show fence.election")).trim());
    c.close();
  }

  static String one(Connection c, String sql) throws SQLException {
    try (Statement s = c.createStatement(); ResultSet rs = s.executeQuery(sql)) {
      rs.next();
      return rs.getString(1);
    }
  }

  static void ways() throws Exception {
    status("options", open("options", "-c fence.token=" + TOKEN));
    status("none", open("options", ""));
    status("primary", open("options", "-c fence.token=" + TOKEN, "targetServerType", "primary"));
    for (String mode : new String[] {"simple", "extended", "extendedForPrepared", "extendedCacheEverything"}) {
      Connection c = open("options", "", "preferQueryMode", mode);
      try (Statement s = c.createStatement()) {
        s.execute("SET fence.token = '" + TOKEN + "'");
      }
      status("SET, " + mode, c);
    }
    // A reader is no primary: the driver says so.
    try {
      open("options", "", "targetServerType", "primary");
      System.out.println("a reader counts as primary");
    } catch (SQLException e) {
      if (!"08001".equals(e.getSQLState())) System.out.println(failure(e));
    }
    System.out.println("done");
  }

  static String token = TOKEN;
  static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));

  static String ask(String what) throws Exception {
    System.out.println(what);
    return in.readLine();
  }

  static void lose(Connection c, String variant) throws Exception {
    switch (variant) {
      case "statement":
        ask("@written");
        update(c, "insert into written values (?)", "lost too");
        break;
      case "commit":
        ask("@written");
        c.commit();
        break;
      case "sleeping":
        System.out.println("@sleeping");
        query(c, "select pg_sleep(600)");
        break;
      case "batch":
        try (PreparedStatement s = c.prepareStatement("insert into written values (?)")) {
          for (int i = 0; i < 3; i++) {
            s.setString(1, "lost too");
            s.addBatch();
          }
          ask("@written");
          s.executeBatch();
        } catch (BatchUpdateException e) {
          throw e.getNextException();
        }
        break;
      case "fetching":
        try (PreparedStatement s = c.prepareStatement("select i from generate_series(1, 100000) i")) {
          s.setFetchSize(10);
          ResultSet rs = s.executeQuery();
          ask("@written");
          while (rs.next()) {}
        }
        break;
    }
  }

  static void loss() throws Exception {
    for (String variant : new String[] {"statement", "commit", "sleeping", "batch", "fetching"}) {
      String[] with = {"options", token.isEmpty() ? "" : "-c fence.token=" + token};
      try (Connection c = open(with)) {
        c.setAutoCommit(false);
        update(c, "insert into written values ('lost')");
        try {
          lose(c, variant);
          System.out.println("lost " + variant + " ok but should not");
        } catch (PSQLException e) {
          System.out.println("lost " + variant + " " + e.getClass().getName() + " " + e.getSQLState() + " "
              + (e.getServerErrorMessage() == null ? e.getMessage() : e.getServerErrorMessage().getSeverity() + " " + e.getServerErrorMessage().getMessage())
              + " valid: " + c.isValid(5));
        }
      } catch (SQLException e) {
        System.out.println("lost " + variant + " closing " + e.getClass().getName() + " " + e.getSQLState());
      }
      try (Connection c = open(with)) {
        System.out.println("again reads " + query(c, "select 1"));
        if (!token.isEmpty()) {
          try {
            update(c, "insert into written values ('stale')");
            System.out.println("again ok but should not");
          } catch (SQLException e) {
            System.out.println("again " + e.getClass().getName() + " " + e.getSQLState() + " " + e.getMessage().lines().findFirst().get() + " | " + warnings(c.getWarnings()));
          }
        }
      }
      token = ask("@again");
      try (Connection c = open("options", token.isEmpty() ? "" : "-c fence.token=" + token)) {
        update(c, "insert into written values ('kept')");
        System.out.println("again writes");
      }
    }
  }

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "session": session(); break;
      case "read": read(); break;
      case "refused": refused(); break;
      case "ways": ways(); break;
      case "loss": loss(); break;
      default: throw new IllegalArgumentException(args[0]);
    }
  }
}
