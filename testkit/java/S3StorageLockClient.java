package org.apache.hudi.aws.transaction.lock;

import java.time.Duration;
import java.util.Properties;
import org.apache.hudi.client.transaction.lock.StorageLockClient;
import org.apache.hudi.client.transaction.lock.models.LockGetResult;
import org.apache.hudi.client.transaction.lock.models.LockUpsertResult;
import org.apache.hudi.client.transaction.lock.models.StorageLockData;
import org.apache.hudi.client.transaction.lock.models.StorageLockFile;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.Pair;
import software.amazon.awssdk.core.ResponseBytes;
import software.amazon.awssdk.core.exception.SdkException;
import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.GetObjectResponse;
import software.amazon.awssdk.services.s3.model.PutObjectRequest;
import software.amazon.awssdk.services.s3.model.S3Exception;

/**
 * Replaces the S3 client of Hudi's hudi-aws artifact if that cannot be downloaded.
 *
 * <p>Hudi's StorageBasedLockProvider, which is never replaced, loads its client by this class name
 * and makes all decisions from the client's results. They are the same as those of Hudi's client:
 * 412 is ACQUIRED_BY_OTHERS, 429 is THROTTLED, 409 and all others are UNKNOWN_ERROR, and no request
 * is sent twice.
 */
public final class S3StorageLockClient implements StorageLockClient {
  private final S3Client s3;
  private final String bucket;
  private final String key;

  /** The constructor that the provider calls. */
  public S3StorageLockClient(String ownerId, String lockFileUri, Properties properties) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(lockFileUri);
    bucket = place.getLeft();
    key = place.getRight();
    Object validity = properties.get("hoodie.write.lock.storage.validity.timeout.secs");
    Duration timeout = Duration.ofSeconds(((Number) validity).longValue() / 5);
    s3 =
        S3Client.builder()
            .overrideConfiguration(
                c -> c.apiCallTimeout(timeout).retryStrategy(r -> r.maxAttempts(1)))
            .build();
  }

  @Override
  public Pair<LockGetResult, Option<StorageLockFile>> readCurrentLockFile() {
    try {
      ResponseBytes<GetObjectResponse> found =
          s3.getObjectAsBytes(request -> request.bucket(bucket).key(key));
      String version = found.response().eTag();
      return Pair.of(
          LockGetResult.SUCCESS,
          Option.of(StorageLockFile.createFromStream(found.asInputStream(), version)));
    } catch (S3Exception error) {
      int status = error.statusCode();
      if (status == 404) {
        return Pair.of(LockGetResult.NOT_EXISTS, Option.empty());
      }
      if (status == 409 || status == 429 || status >= 500) {
        return Pair.of(LockGetResult.UNKNOWN_ERROR, Option.empty());
      }
      throw error;
    }
  }

  @Override
  public Pair<LockUpsertResult, Option<StorageLockFile>> tryUpsertLockFile(
      StorageLockData data, Option<StorageLockFile> previous) {
    PutObjectRequest.Builder request = PutObjectRequest.builder().bucket(bucket).key(key);
    if (previous.isPresent()) {
      request.ifMatch(previous.get().getVersionId());
    } else {
      request.ifNoneMatch("*");
    }
    byte[] body = StorageLockFile.toByteArray(data);
    try {
      String version = s3.putObject(request.build(), RequestBody.fromBytes(body)).eTag();
      return Pair.of(LockUpsertResult.SUCCESS, Option.of(new StorageLockFile(data, version)));
    } catch (S3Exception error) {
      switch (error.statusCode()) {
        case 412:
          return Pair.of(LockUpsertResult.ACQUIRED_BY_OTHERS, Option.empty());
        case 429:
          return Pair.of(LockUpsertResult.THROTTLED, Option.empty());
        default:
          return Pair.of(LockUpsertResult.UNKNOWN_ERROR, Option.empty());
      }
    } catch (SdkException error) {
      // If the lock file cannot be created, the configuration is wrong, which must be reported.
      if (!previous.isPresent()) {
        throw error;
      }
      return Pair.of(LockUpsertResult.UNKNOWN_ERROR, Option.empty());
    }
  }

  @Override
  public Option<String> readObject(String uri, boolean mayBeAbsent) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    try {
      if (mayBeAbsent) {
        s3.headObject(request -> request.bucket(place.getLeft()).key(place.getRight()));
      }
      return Option.of(
          s3.getObjectAsBytes(request -> request.bucket(place.getLeft()).key(place.getRight()))
              .asUtf8String());
    } catch (SdkException error) {
      return Option.empty();
    }
  }

  @Override
  public boolean writeObject(String uri, String content) {
    Pair<String, String> place = StorageLockClient.parseBucketAndPath(uri);
    try {
      s3.putObject(
          request -> request.bucket(place.getLeft()).key(place.getRight()),
          RequestBody.fromString(content));
      return true;
    } catch (SdkException error) {
      return false;
    }
  }

  @Override
  public void close() {
    s3.close();
  }
}
