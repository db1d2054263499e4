import org.apache.hudi.client.transaction.lock.StorageBasedLockProvider;
import org.apache.hudi.common.config.LockConfiguration;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.storage.StorageConfiguration;

/**
 * Hudi's StorageBasedLockProvider, unmodified, with its lock file at another base path.
 *
 * <p>The provider needs a store with conditional writes, and Hudi's file system for such a store is
 * a large download. So the table of these writers is in a local folder, and its lock is on S3.
 */
public final class FleetLock extends StorageBasedLockProvider {
  static final String BASE_PATH = "fleet.lock.base.path";

  /** The constructor that Hudi calls. */
  public FleetLock(LockConfiguration given, StorageConfiguration<?> storage) {
    super(moved(given), storage);
  }

  private static LockConfiguration moved(LockConfiguration given) {
    TypedProperties properties = TypedProperties.copy(given.getConfig());
    properties.setProperty("hoodie.base.path", given.getConfig().getString(BASE_PATH));
    S3WarmUp.run(given.getConfig().getString(BASE_PATH));
    // Hudi's S3 client casts this value to a Number, so it cannot be text.
    properties.put("hoodie.write.lock.storage.validity.timeout.secs", 10);
    properties.put("hoodie.write.lock.storage.renew.interval.secs", 1);
    return new LockConfiguration(properties);
  }
}
