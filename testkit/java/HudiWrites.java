import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.avro.Schema;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.client.HoodieJavaWriteClient;
import org.apache.hudi.client.WriteStatus;
import org.apache.hudi.client.common.HoodieJavaEngineContext;
import org.apache.hudi.client.heartbeat.HoodieHeartbeatClient;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.engine.EngineType;
import org.apache.hudi.common.model.HoodieAvroIndexedRecord;
import org.apache.hudi.common.model.HoodieKey;
import org.apache.hudi.common.model.HoodieRecord;
import org.apache.hudi.common.table.HoodieTableConfig;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.TableSchemaResolver;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.config.HoodieWriteConfig;
import org.apache.hudi.keygen.KeyGenerator;
import org.apache.hudi.keygen.factory.HoodieAvroKeyGeneratorFactory;
import org.apache.hudi.storage.HoodieStorageUtils;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;
import org.apache.hudi.table.action.HoodieWriteMetadata;

/** Writes with Hudi's Java client into an existing table, with the table's own settings. */
final class HudiWrites {
  private static final Map<String, HoodieHeartbeatClient> HEARTS = new HashMap<>();
  private static final String JAVA_CLUSTERING =
      "org.apache.hudi.client.clustering.run.strategy.JavaSortAndSizeExecutionStrategy";

  private final StorageConfiguration<?> storage = new HadoopStorageConfiguration(settings());
  private final String basePath;
  private final HoodieTableConfig table;
  private final TypedProperties settings = new TypedProperties();
  private final Schema schema;

  HudiWrites(String basePath, JsonNode options) throws Exception {
    this.basePath = basePath;
    HoodieTableMetaClient client =
        HoodieTableMetaClient.builder().setConf(storage).setBasePath(basePath).build();
    table = client.getTableConfig();
    schema = new TableSchemaResolver(client).getTableSchema(false).toAvroSchema();
    put("hoodie.datasource.write.recordkey.field", table.getRecordKeyFieldProp());
    put("hoodie.datasource.write.partitionpath.field", partitionFields(client));
    put("hoodie.datasource.write.hive_style_partitioning", table.getHiveStylePartitioningEnable());
    put("hoodie.datasource.write.partitionpath.urlencode", table.getUrlEncodePartitioning());
    // The server for markers is in an artifact that not every mirror has.
    put("hoodie.embed.timeline.server", "false");
    put("hoodie.write.markers.type", "DIRECT");
    put("hoodie.filesystem.view.type", "MEMORY");
    options
        .fields()
        .forEachRemaining(option -> put(option.getKey(), option.getValue().asText()));
  }

  /** Commits the rows of a file with one operation; returns the request time of the commit. */
  String write(String operation, String file) throws Exception {
    List<GenericRecord> rows = rows(file);
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      String instant = client.startCommit();
      List<WriteStatus> written = written(client, instant, operation, rows);
      for (WriteStatus status : written) {
        if (status.hasErrors()) {
          throw new IOException("Hudi could not write: " + status);
        }
      }
      client.commit(instant, written);
      return instant;
    }
  }

  /** Compacts the table; returns the request time, empty if there was nothing to compact. */
  String compact() throws IOException {
    put("hoodie.compact.inline.max.delta.commits", "1");
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      Option<String> instant = client.scheduleCompaction(Option.empty());
      if (instant.isEmpty()) {
        return "";
      }
      HoodieWriteMetadata<List<WriteStatus>> done = client.compact(instant.get());
      client.commitCompaction(instant.get(), done, Option.empty());
      return instant.get();
    }
  }

  /** Schedules a compaction; returns its request time, empty if there was nothing to compact. */
  String scheduleCompaction() throws IOException {
    put("hoodie.compact.inline.max.delta.commits", "1");
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      return client.scheduleCompaction(Option.empty()).orElse("");
    }
  }

  /** Executes a scheduled compaction; returns its request time. */
  String executeCompaction(String instant) throws IOException {
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      client.commitCompaction(instant, client.compact(instant), Option.empty());
      return instant;
    }
  }

  /** Schedules a clustering; returns its request time, empty if there was nothing to cluster. */
  String scheduleClustering() throws IOException {
    put("hoodie.clustering.async.max.commits", "1");
    put("hoodie.clustering.inline.max.commits", "1");
    put(
        "hoodie.clustering.plan.strategy.class",
        "org.apache.hudi.client.clustering.plan.strategy.JavaSizeBasedClusteringPlanStrategy");
    put("hoodie.clustering.execution.strategy.class", JAVA_CLUSTERING);
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      return client.scheduleClustering(Option.empty()).orElse("");
    }
  }

  /** Executes a scheduled clustering; returns its request time. */
  String executeClustering(String instant) throws IOException {
    put("hoodie.clustering.execution.strategy.class", JAVA_CLUSTERING);
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      client.cluster(instant, true);
      return instant;
    }
  }

  /** Schedules a log compaction; returns its request time, empty if there was nothing to compact. */
  String scheduleLogCompaction() throws IOException {
    put("hoodie.log.compaction.enable", "true");
    put("hoodie.log.compaction.blocks.threshold", "1");
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      return client.scheduleLogCompaction(Option.empty()).orElse("");
    }
  }

  /** Executes a scheduled log compaction; returns its request time. */
  String executeLogCompaction(String instant) throws IOException {
    put("hoodie.log.compaction.enable", "true");
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      client.commitLogCompaction(instant, client.logCompact(instant), Option.empty());
      return instant;
    }
  }

  /** Rolls back a clustering plan; returns whether it existed. */
  boolean purgeClustering(String instant) {
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      return client.purgePendingClustering(instant);
    }
  }

  /** Starts the heartbeat of an instant, like an executor; it runs until it is stopped. */
  String beat(String instant, boolean beats) throws IOException {
    HoodieHeartbeatClient heart =
        HEARTS.computeIfAbsent(
            basePath,
            path ->
                new HoodieHeartbeatClient(
                    HoodieStorageUtils.getStorage(path, storage), path, 1_000L, 60));
    if (beats) {
      heart.start(instant);
    } else {
      heart.stop(instant);
    }
    return instant;
  }

  /** Rolls back an instant, completed or not; returns whether it was rolled back. */
  boolean rollback(String instant) {
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      return client.rollback(instant);
    }
  }

  /** Restores the table to an instant; returns the request time of the restore. */
  String restore(String instant) {
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      return client.restoreToInstant(instant, false).getStartRestoreTime();
    }
  }

  /** Cleans the table; returns the number of deleted files. */
  int clean() {
    try (HoodieJavaWriteClient<IndexedRecord> client = client()) {
      var done = client.clean();
      return done == null ? 0 : done.getTotalFilesDeleted();
    }
  }

  private List<WriteStatus> written(
      HoodieJavaWriteClient<IndexedRecord> client,
      String instant,
      String operation,
      List<GenericRecord> rows)
      throws IOException {
    KeyGenerator keys = HoodieAvroKeyGeneratorFactory.createAvroKeyGeneratorByType(keySettings());
    switch (operation) {
      case "upsert":
        return client.upsert(records(rows, keys), instant);
      case "insert":
        return client.insert(records(rows, keys), instant);
      case "bulk_insert":
        return client.bulkInsert(records(rows, keys), instant);
      case "delete":
        List<HoodieKey> gone = rows.stream().map(keys::getKey).collect(Collectors.toList());
        return client.delete(gone, instant);
      default:
        throw new IllegalArgumentException("unknown operation " + operation);
    }
  }

  private List<HoodieRecord<IndexedRecord>> records(List<GenericRecord> rows, KeyGenerator keys) {
    List<String> ordering = table.getOrderingFields();
    List<HoodieRecord<IndexedRecord>> records = new ArrayList<>();
    for (GenericRecord row : rows) {
      HoodieKey key = keys.getKey(row);
      Comparable<?> order = ordering.isEmpty() ? 0 : (Comparable<?>) row.get(ordering.get(0));
      records.add(new HoodieAvroIndexedRecord(key, row, order));
    }
    return records;
  }

  private HoodieJavaWriteClient<IndexedRecord> client() {
    Properties ofTable = new Properties();
    ofTable.putAll(table.getProps());
    HoodieWriteConfig config =
        HoodieWriteConfig.newBuilder()
            .withEngineType(EngineType.JAVA)
            .withPath(basePath)
            .withSchema(schema.toString())
            .forTable(table.getTableName())
            .withParallelism(2, 2)
            .withDeleteParallelism(2)
            .withProps(ofTable)
            .withProps(settings)
            .build();
    return new HoodieJavaWriteClient<>(new HoodieJavaEngineContext(storage), config);
  }

  private TypedProperties keySettings() {
    TypedProperties all = new TypedProperties();
    all.putAll(table.getProps());
    all.putAll(settings);
    all.setProperty(
        "hoodie.datasource.write.keygenerator.type",
        table.getString("hoodie.table.keygenerator.type"));
    return all;
  }

  private List<GenericRecord> rows(String file) throws IOException {
    List<GenericRecord> rows = new ArrayList<>();
    GenericDatumReader<GenericRecord> shape = new GenericDatumReader<>(null, schema);
    try (DataFileReader<GenericRecord> reader = new DataFileReader<>(new File(file), shape)) {
      reader.forEach(rows::add);
    }
    return rows;
  }

  private static Configuration settings() {
    Configuration conf = new Configuration();
    // The old list structure, Hudi's default, cannot represent null elements.
    conf.setBoolean("parquet.avro.write-old-list-structure", false);
    return conf;
  }

  private static String partitionFields(HoodieTableMetaClient client) {
    return client.getTableConfig().getPartitionFields().map(each -> String.join(",", each)).orElse("");
  }

  private void put(String name, String value) {
    if (value != null) {
      settings.setProperty(name, value);
    }
  }
}
