import java.time.Duration;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.common.util.collection.Pair;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * Loads the classes of the AWS SDK by requests that have no effect.
 *
 * <p>Hudi's S3 client gives each request a fifth of the lease, two seconds here. On a loaded machine
 * the first ones of a process take longer.
 */
final class S3WarmUp {
  private static boolean done;

  private S3WarmUp() {}

  static synchronized void run(String basePath) {
    if (done) {
      return;
    }
    done = true;
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(basePath + "/no-object");
    String bucket = place.getLeft();
    String key = place.getRight();
    try (S3Client s3 =
        S3Client.builder()
            .overrideConfiguration(c -> c.apiCallTimeout(Duration.ofMinutes(2)))
            .build()) {
      try {
        s3.getObjectAsBytes(request -> request.bucket(bucket).key(key));
      } catch (S3Exception missing) {
        // There is none.
      }
      try {
        // The precondition fails, so nothing is written.
        s3.putObject(r -> r.bucket(bucket).key(key).ifMatch("none"), RequestBody.fromString(""));
      } catch (S3Exception refused) {
        // As intended.
      }
    }
  }
}
