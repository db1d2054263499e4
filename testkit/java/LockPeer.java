import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.LockItem;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.lock.LockProvider;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;

/**
 * A process that runs a lock of another project, by command.
 *
 * <p>Arguments: {@code curator <connect> <path>}, {@code amazon <url> <table> <key> <lease ms>}, or
 * {@code hudi <provider class> <key=value>...}. Each line of standard input is a command; each
 * answer is one line of JSON, {"value": ...} or {"error": ...}.
 */
public final class LockPeer {
  /** The operations that all of these locks have. */
  private interface Peer {
    boolean lock(long waitMs) throws Exception;

    void unlock() throws Exception;

    void close() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    // Output of libraries must not be mistaken for an answer.
    PrintStream answers = System.out;
    System.setOut(System.err);
    Peer peer = open(arguments);
    answers.println("{\"value\": \"ready\"}");
    BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      answers.println(answer(peer, line.split("\t")));
    }
    peer.close();
    System.exit(0);
  }

  private static Peer open(String[] arguments) throws Exception {
    switch (arguments[0]) {
      case "curator":
        return new CuratorPeer(arguments[1], arguments[2]);
      case "amazon":
        return new AmazonPeer(
            arguments[1], arguments[2], arguments[3], Long.parseLong(arguments[4]));
      case "hudi":
        return new HudiPeer(arguments);
      default:
        throw new IllegalArgumentException("unknown peer " + arguments[0]);
    }
  }

  private static String answer(Peer peer, String[] command) {
    try {
      return "{\"value\": " + perform(peer, command) + "}";
    } catch (Exception | LinkageError error) {
      String text = error.toString().replaceAll("[^ -~]", " ").replaceAll("[\"\\\\]", "'");
      return "{\"error\": \"" + text + "\"}";
    }
  }

  private static String perform(Peer peer, String[] command) throws Exception {
    switch (command[0]) {
      case "lock":
        return String.valueOf(peer.lock(Long.parseLong(command[1])));
      case "unlock":
        peer.unlock();
        return "true";
      case "sections":
        return String.valueOf(
            sections(peer, Integer.parseInt(command[1]), Path.of(command[2])));
      default:
        throw new IllegalArgumentException("unknown command " + command[0]);
    }
  }

  /** Runs `count` critical sections; returns how many of them overlapped with another process. */
  private static int sections(Peer peer, int count, Path marker) throws Exception {
    int overlaps = 0;
    for (int done = 0; done < count; ) {
      if (!peer.lock(20_000)) {
        continue;
      }
      done++;
      try {
        Files.createFile(marker);
      } catch (FileAlreadyExistsException inside) {
        overlaps++;
      }
      Thread.sleep(ThreadLocalRandom.current().nextLong(1, 6));
      Files.deleteIfExists(marker);
      peer.unlock();
      Thread.sleep(ThreadLocalRandom.current().nextLong(0, 20));
    }
    return overlaps;
  }

  /** Curator's own recipe. */
  private static final class CuratorPeer implements Peer {
    private final CuratorFramework client;
    private final InterProcessMutex mutex;

    CuratorPeer(String connect, String path) throws Exception {
      client = CuratorFrameworkFactory.newClient(connect, 10_000, 10_000, new RetryOneTime(500));
      client.start();
      client.blockUntilConnected();
      mutex = new InterProcessMutex(client, path);
    }

    @Override
    public boolean lock(long waitMs) throws Exception {
      return mutex.acquire(waitMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public void unlock() throws Exception {
      mutex.release();
    }

    @Override
    public void close() {
      client.close();
    }
  }

  /** Amazon's lock client, configured as in Hudi. */
  private static final class AmazonPeer implements Peer {
    private final AmazonDynamoDBLockClient client;
    private final String key;
    private LockItem held;

    AmazonPeer(String url, String table, String key, long leaseMs) {
      this.key = key;
      DynamoDbClient dynamo =
          DynamoDbClient.builder()
              .endpointOverride(URI.create(url))
              .region(Region.US_EAST_1)
              .credentialsProvider(
                  StaticCredentialsProvider.create(
                      AwsBasicCredentials.create("tidelock", "tidelock")))
              .build();
      client =
          new AmazonDynamoDBLockClient(
              AmazonDynamoDBLockClientOptions.builder(dynamo, table)
                  .withTimeUnit(TimeUnit.MILLISECONDS)
                  .withLeaseDuration(leaseMs)
                  .withHeartbeatPeriod(leaseMs / 3)
                  .withCreateHeartbeatBackgroundThread(true)
                  .build());
    }

    @Override
    public boolean lock(long waitMs) throws Exception {
      Optional<LockItem> item =
          client.tryAcquireLock(
              AcquireLockOptions.builder(key)
                  .withAdditionalTimeToWaitForLock(waitMs)
                  .withRefreshPeriod(20L)
                  .withTimeUnit(TimeUnit.MILLISECONDS)
                  .build());
      held = item.orElse(null);
      return held != null;
    }

    @Override
    public void unlock() {
      if (!client.releaseLock(held)) {
        throw new IllegalStateException("the item was stolen");
      }
    }

    @Override
    public void close() throws Exception {
      client.close();
    }
  }

  /** One of Hudi's own providers, by its class name. */
  private static final class HudiPeer implements Peer {
    private final LockProvider<?> provider;

    HudiPeer(String[] arguments) throws Exception {
      Properties properties = new Properties();
      for (int place = 2; place < arguments.length; place++) {
        String[] pair = arguments[place].split("=", 2);
        properties.setProperty(pair[0], pair[1]);
      }
      StorageConfiguration<?> storage = new HadoopStorageConfiguration(new Configuration());
      provider =
          (LockProvider<?>)
              Class.forName(arguments[1])
                  .getConstructor(LockConfiguration.class, StorageConfiguration.class)
                  .newInstance(new LockConfiguration(properties), storage);
    }

    @Override
    public boolean lock(long waitMs) {
      long until = System.nanoTime() + waitMs * 1_000_000;
      do {
        try {
          if (provider.tryLock(waitMs, TimeUnit.MILLISECONDS)) {
            return true;
          }
          Thread.sleep(10);
        } catch (org.apache.hudi.exception.HoodieLockException refused) {
          // The ZooKeeper provider throws this on a timeout.
        } catch (InterruptedException interrupted) {
          Thread.currentThread().interrupt();
          return false;
        }
      } while (System.nanoTime() < until);
      return false;
    }

    @Override
    public void unlock() {
      provider.unlock();
    }

    @Override
    public void close() {
      // The filesystem provider's close removes the lock file, even that of another owner.
    }
  }
}
