import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TimeZone;

/**
 * A process that reads and writes Hudi tables with Apache Hudi's own Java code, by command.
 *
 * <p>Each line of standard input is a JSON object with a command in "do"; each answer is one line of
 * JSON, {"value": ...} or {"error": ...}. Rows are exchanged in Avro container files, which preserve
 * every type; the command names the file. The process exits at the end of the input.
 */
public final class HudiTables {
  private static final ObjectMapper JSON = new ObjectMapper();

  private HudiTables() {}

  public static void main(String[] arguments) throws IOException {
    // Output of libraries must not be mistaken for an answer.
    PrintStream answers = System.out;
    System.setOut(System.err);
    // Hudi's client formats instants in the time zone of the process, not in that of the table.
    TimeZone.setDefault(TimeZone.getTimeZone(System.getProperty("tidelock.zone", "UTC")));
    answers.println(JSON.writeValueAsString(Map.of("value", "ready")));
    BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
      answers.flush();
    }
    // Remaining threads of libraries must not keep the process alive.
    System.exit(0);
  }

  private static Map<String, Object> answer(JsonNode command) {
    try {
      return Map.of("value", perform(command));
    } catch (Exception | LinkageError error) {
      StringWriter trace = new StringWriter();
      error.printStackTrace(new PrintWriter(trace));
      return Map.of("error", error.toString(), "trace", trace.toString());
    }
  }

  private static Object perform(JsonNode command) throws Exception {
    String table = command.get("table").asText();
    switch (command.get("do").asText()) {
      case "snapshot":
        return new HudiRows(table).snapshot(text(command, "as_of"), command.get("rows").asText());
      case "read_optimized":
        return new HudiRows(table).readOptimized(command.get("rows").asText());
      case "changes":
        return new HudiRows(table)
            .changes(text(command, "since"), text(command, "until"), command.get("rows").asText());
      case "timeline":
        return new HudiRows(table).timeline();
      case "write":
        return new HudiWrites(table, command.get("options"))
            .write(command.get("operation").asText(), command.get("rows").asText());
      case "compact":
        return new HudiWrites(table, command.get("options")).compact();
      case "schedule_compaction":
        return new HudiWrites(table, command.get("options")).scheduleCompaction();
      case "execute_compaction":
        return new HudiWrites(table, command.get("options"))
            .executeCompaction(command.get("instant").asText());
      case "schedule_clustering":
        return new HudiWrites(table, command.get("options")).scheduleClustering();
      case "execute_clustering":
        return new HudiWrites(table, command.get("options"))
            .executeClustering(command.get("instant").asText());
      case "schedule_log_compaction":
        return new HudiWrites(table, command.get("options")).scheduleLogCompaction();
      case "execute_log_compaction":
        return new HudiWrites(table, command.get("options"))
            .executeLogCompaction(command.get("instant").asText());
      case "purge_clustering":
        return new HudiWrites(table, command.get("options"))
            .purgeClustering(command.get("instant").asText());
      case "beat":
        return new HudiWrites(table, command.get("options"))
            .beat(command.get("instant").asText(), command.get("beats").asBoolean());
      case "rollback":
        return new HudiWrites(table, command.get("options"))
            .rollback(command.get("instant").asText());
      case "restore":
        return new HudiWrites(table, command.get("options"))
            .restore(command.get("instant").asText());
      case "clean":
        return new HudiWrites(table, command.get("options")).clean();
      default:
        throw new IllegalArgumentException("unknown command " + command.get("do"));
    }
  }

  private static String text(JsonNode command, String name) {
    JsonNode found = command.get(name);
    return found == null || found.isNull() ? null : found.asText();
  }
}
