import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.client.transaction.lock.StorageBasedLockProvider;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.config.LockConfiguration;

/**
 * A process that runs Apache Hudi's own StorageBasedLockProvider, by command.
 *
 * <p>Arguments: base path, validity in seconds, renewal interval in seconds. Each line of standard
 * input is a command; each answer is one line of JSON, {"value": ...} or {"error": ...}. The
 * provider is closed at the end of the input.
 */
public final class HudiWriter {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final StorageBasedLockProvider provider;

  private HudiWriter(String basePath, int validitySeconds, int renewSeconds) {
    Properties properties = new Properties();
    properties.setProperty("hoodie.base.path", basePath);
    // Hudi's S3 client casts this value to a Number, so it cannot be text.
    properties.put("hoodie.write.lock.storage.validity.timeout.secs", validitySeconds);
    properties.put("hoodie.write.lock.storage.renew.interval.secs", renewSeconds);
    provider = new StorageBasedLockProvider(new LockConfiguration(properties), null);
  }

  public static void main(String[] arguments) throws IOException {
    // Output of libraries must not be mistaken for an answer.
    PrintStream answers = System.out;
    System.setOut(System.err);
    S3WarmUp.run(arguments[0]);
    HudiWriter writer =
        new HudiWriter(
            arguments[0], Integer.parseInt(arguments[1]), Integer.parseInt(arguments[2]));
    answers.println(JSON.writeValueAsString(Map.of("value", "ready")));
    BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      answers.println(JSON.writeValueAsString(writer.answer(line.split("\t"))));
    }
    writer.provider.close();
  }

  private Map<String, Object> answer(String[] command) {
    try {
      return Map.of("value", perform(command));
    } catch (Exception | LinkageError error) {
      return Map.of("error", error.toString());
    }
  }

  private Object perform(String[] command) throws Exception {
    switch (command[0]) {
      case "try":
        return provider.tryLock();
      case "lock":
        return provider.tryLock(Long.parseLong(command[1]), TimeUnit.MILLISECONDS);
      case "unlock":
        provider.unlock();
        return true;
      case "owner":
        return provider.getLock() == null ? "" : provider.getLock().getOwner();
      case "clock":
        return System.nanoTime();
      case "parse":
        return parse(command[1]);
      case "sections":
        return sections(
            command[1], Integer.parseInt(command[2]), Path.of(command[3]), Path.of(command[4]));
      default:
        throw new IllegalArgumentException("unknown command " + command[0]);
    }
  }

  private static Map<String, Object> parse(String text) {
    byte[] body = text.getBytes(StandardCharsets.UTF_8);
    StorageLockFile file = StorageLockFile.createFromStream(new ByteArrayInputStream(body), "v");
    return Map.of(
        "expired", file.isExpired(),
        "validUntil", file.getValidUntilMs(),
        "owner", file.getOwner());
  }

  /** Runs `count` critical sections; returns the number of attempts to acquire the lock. */
  private int sections(String name, int count, Path journal, Path marker) throws Exception {
    int looks = 0;
    for (int done = 0; done < count; done++) {
      // The timed tryLock polls once per second; single attempts at short intervals contend more.
      for (looks++; !provider.tryLock(); looks++) {
        Thread.sleep(ThreadLocalRandom.current().nextLong(5, 25));
      }
      section(name, journal, marker);
      provider.unlock();
      Thread.sleep(ThreadLocalRandom.current().nextLong(0, 40));
    }
    return looks;
  }

  private static void section(String name, Path journal, Path marker) throws Exception {
    try {
      Files.createFile(marker);
    } catch (FileAlreadyExistsException overlap) {
      append(journal, "overlap", name);
    }
    append(journal, "begin", name);
    Thread.sleep(ThreadLocalRandom.current().nextLong(1, 6));
    append(journal, "end", name);
    Files.deleteIfExists(marker);
  }

  private static void append(Path journal, String event, String name) throws IOException {
    String line = System.nanoTime() + " " + event + " " + name + " 0\n";
    Files.writeString(journal, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
  }
}
