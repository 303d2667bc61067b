import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Properties;

/** Which kinds of server the JDBC driver takes the proxy for: a line for each targetServerType. */
public class Target {
  public static void main(String[] args) throws Exception {
    String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
    for (String token : new String[] {"", System.getenv("FENCE_TOKEN")}) {
      for (String type : new String[] {"any", "primary", "secondary", "preferSecondary"}) {
        Properties p = new Properties();
        p.setProperty("user", System.getenv("PGUSER"));
        p.setProperty("sslmode", "disable");
        p.setProperty("targetServerType", type);
        p.setProperty("hostRecheckSeconds", "0");
        if (!token.isEmpty()) p.setProperty("options", "-c fence.token=" + token);
        String got;
        try (Connection c = DriverManager.getConnection(url, p)) {
          got = "yes";
        } catch (SQLException e) {
          got = "no";
        }
        System.out.println((token.isEmpty() ? "reader " : "leader ") + type + ": " + got);
      }
    }
  }
}
