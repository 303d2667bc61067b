import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One of several workers. The one that leads writes to Postgres through a fenceproxy; the
 * others wait.
 *
 * <pre>java -cp /usr/share/java/postgresql.jar Worker.java a</pre>
 */
public class Worker {
    static final String API = env("FENCEPROXY", "http://127.0.0.1:9180");
    static final String DATABASE = env("DATABASE", "jdbc:postgresql://127.0.0.1:6432/shop?user=app"); // the proxy
    static final Duration LEASE = Duration.ofSeconds(Long.parseLong(env("LEASE", "15")));
    static final String ELECTION = "invoices";
    static final HttpClient http = HttpClient.newHttpClient();
    static volatile boolean stopping;

    public static void main(String[] args) throws Exception {
        String worker = args[0];
        Thread self = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                self.join(); // until it has resigned
            } catch (InterruptedException e) {
                return;
            }
        }));
        while (!stopping) {
            long asked = System.nanoTime();
            String answer = ask("acquire", "{\"owner\": \"" + worker + "\", \"ttl_ms\": " + LEASE.toMillis() + "}");
            if (!field(answer, "outcome").equals("acquired")) {
                Thread.sleep(LEASE.toMillis() / 15);
                continue;
            }
            System.out.println(worker + " leads with number " + field(answer, "number"));
            String token = field(answer, "token");
            try {
                lead(worker, token, asked);
            } catch (SQLException e) {
                System.out.println(worker + " failed: " + e.getMessage()); // a stale leader: SQLSTATE FP001
            } finally {
                ask("resign", "{\"token\": \"" + token + "\"}"); // so that the next need not wait for the lease
                System.out.println(worker + " leads no more");
            }
        }
    }

    /** Works while the lease can be trusted: until a tenth before its end, counted from before
     * it was asked for. Work that takes longer than this needs a thread that renews. */
    static void lead(String worker, String token, long renewed) throws Exception {
        Properties credential = new Properties();
        credential.setProperty("options", "-c fence.election=" + ELECTION + " -c fence.token=" + token);
        try (Connection conn = DriverManager.getConnection(DATABASE, credential)) {
            conn.setAutoCommit(false);
            for (int order = 1; !stopping && System.nanoTime() - renewed < LEASE.toNanos() * 9 / 10; order++) {
                long now = System.nanoTime();
                if (now - renewed > LEASE.toNanos() / 3) {
                    String outcome = field(ask("renew", "{\"token\": \"" + token + "\"}"), "outcome");
                    if (outcome.equals("lost")) {
                        return;
                    } else if (outcome.equals("renewed")) {
                        renewed = now;
                    }
                }
                try (var insert = conn.prepareStatement("INSERT INTO journal (worker) VALUES (?)")) {
                    insert.setString(1, worker);
                    insert.executeUpdate();
                }
                System.out.println(worker + " begins order " + order);
                Thread.sleep(500); // an order takes a moment
                conn.commit();
                System.out.println(worker + " wrote order " + order);
            }
        }
    }

    /** Asks the proxy about the election: acquire, renew or resign. The answer is JSON; empty
     * where there was none. */
    static String ask(String verb, String body) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(API + "/v1/elections/" + ELECTION + "/" + verb))
                .header("Content-Type", "application/json").timeout(LEASE.dividedBy(3))
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
        try {
            return http.send(request, BodyHandlers.ofString()).body();
        } catch (java.io.IOException e) {
            System.out.println("cannot " + verb + ": " + e);
            return "";
        }
    }

    /** A field of a flat JSON object. */
    static String field(String json, String name) {
        Matcher m = Pattern.compile("\"" + name + "\":\\s*\"?([^\",}]*)").matcher(json);
        return m.find() ? m.group(1) : "";
    }

    static String env(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
