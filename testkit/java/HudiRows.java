import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.avro.Schema;
import org.apache.avro.file.DataFileWriter;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.IndexedRecord;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.avro.HoodieAvroReaderContext;
import org.apache.hudi.common.config.HoodieMetadataConfig;
import org.apache.hudi.common.config.TypedProperties;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.common.fs.FSUtils;
import org.apache.hudi.common.model.FileSlice;
import org.apache.hudi.common.model.HoodieBaseFile;
import org.apache.hudi.common.model.HoodieWriteStat;
import org.apache.hudi.common.schema.HoodieSchema;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.TableSchemaResolver;
import org.apache.hudi.common.table.log.InstantRange;
import org.apache.hudi.common.table.read.HoodieFileGroupReader;
import org.apache.hudi.common.table.read.IncrementalQueryAnalyzer;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.common.table.view.FileSystemViewManager;
import org.apache.hudi.common.table.view.HoodieTableFileSystemView;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.common.util.collection.ClosableIterator;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

/** Reads the rows of a table with Hudi's timeline, file system view and file group reader. */
final class HudiRows {
  private final StorageConfiguration<?> storage = new HadoopStorageConfiguration(new Configuration());
  private final HoodieTableMetaClient table;
  private final HoodieTimeline completed;

  HudiRows(String basePath) {
    table =
        HoodieTableMetaClient.builder()
            .setConf(storage)
            .setBasePath(basePath)
            .setLoadActiveTimelineOnLoad(true)
            .build();
    completed = table.getCommitsAndCompactionTimeline().filterCompletedInstants();
  }

  /** Writes the current rows, or those of commits requested up to `asOf`; returns their number. */
  long snapshot(String asOf, String file) throws Exception {
    if (completed.lastInstant().isEmpty()) {
      return 0;
    }
    String latest = asOf == null ? completed.lastInstant().get().requestedTime() : asOf;
    HoodieSchema schema = schema(asOf);
    try (HoodieTableFileSystemView view = view();
        Output output = new Output(file, schema.toAvroSchema())) {
      for (String partition : partitions()) {
        Stream<FileSlice> slices = view.getLatestMergedFileSlicesBeforeOrOn(partition, latest);
        for (FileSlice slice : slices.collect(Collectors.toList())) {
          read(slice, schema, latest, null, output);
        }
      }
      return output.count;
    }
  }

  /** Writes the rows of the latest base files. */
  long readOptimized(String file) throws Exception {
    HoodieSchema schema = schema(null);
    try (HoodieTableFileSystemView view = view();
        Output output = new Output(file, schema.toAvroSchema())) {
      for (String partition : partitions()) {
        for (HoodieBaseFile base :
            view.getLatestBaseFiles(partition).collect(Collectors.toList())) {
          String group = base.getFileId();
          FileSlice slice = new FileSlice(partition, base.getCommitTime(), group);
          slice.setBaseFile(base);
          read(slice, schema, completed.lastInstant().get().requestedTime(), null, output);
        }
      }
      return output.count;
    }
  }

  /**
   * Writes the rows changed by commits completed in (since, until].
   *
   * <p>Hudi determines the instants. Like Spark's relation, it reads the file groups that they
   * touched as of the last of them, and omits rows of other instants.
   */
  long changes(String since, String until, String file) throws Exception {
    IncrementalQueryAnalyzer.QueryContext query =
        IncrementalQueryAnalyzer.builder()
            .metaClient(table)
            .startCompletionTime(since)
            .endCompletionTime(until)
            .rangeType(InstantRange.RangeType.OPEN_CLOSED)
            .build()
            .analyze();
    HoodieSchema schema = schema(null);
    try (HoodieTableFileSystemView view = view();
        Output output = new Output(file, schema.toAvroSchema())) {
      if (query.isEmpty()) {
        return 0;
      }
      Set<String> instants = new HashSet<>(query.getInstantTimeList());
      String last = query.getLastInstant();
      for (Map.Entry<String, Set<String>> touched : touched(query).entrySet()) {
        for (FileSlice slice :
            view.getLatestMergedFileSlicesBeforeOrOn(touched.getKey(), last)
                .filter(each -> touched.getValue().contains(each.getFileId()))
                .collect(Collectors.toList())) {
          read(slice, schema, last, instants, output);
        }
      }
      return output.count;
    }
  }

  /** Returns each instant as request time, action, state and completion time. */
  List<List<String>> timeline() {
    List<List<String>> found = new ArrayList<>();
    for (HoodieInstant instant : table.getActiveTimeline().getInstants()) {
      String completion = instant.getCompletionTime() == null ? "" : instant.getCompletionTime();
      found.add(
          List.of(
              instant.requestedTime(),
              instant.getAction(),
              instant.getState().name(),
              completion));
    }
    return found;
  }

  private Map<String, Set<String>> touched(IncrementalQueryAnalyzer.QueryContext query)
      throws IOException {
    Map<String, Set<String>> groups = new HashMap<>();
    for (HoodieInstant instant : query.getActiveInstants()) {
      for (HoodieWriteStat stat :
          table.getActiveTimeline().readCommitMetadata(instant).getWriteStats()) {
        groups
            .computeIfAbsent(stat.getPartitionPath(), none -> new HashSet<>())
            .add(stat.getFileId());
      }
    }
    return groups;
  }

  private void read(
      FileSlice slice, HoodieSchema schema, String latest, Set<String> instants, Output output)
      throws IOException {
    HoodieAvroReaderContext context =
        new HoodieAvroReaderContext(
            storage, table.getTableConfig(), Option.empty(), Option.empty(), new TypedProperties());
    try (HoodieFileGroupReader<IndexedRecord> reader =
            HoodieFileGroupReader.<IndexedRecord>builder()
                .withReaderContext(context)
                .withHoodieTableMetaClient(table)
                .withLatestCommitTime(latest)
                .withDataSchema(schema)
                .withRequestedSchema(schema)
                .withBaseFileOption(slice.getBaseFile())
                .withLogFiles(slice.getLogFiles())
                .withPartitionPath(slice.getPartitionPath())
                .withProps(table.getTableConfig().getProps())
                .withShouldUseRecordPosition(false)
                .build();
        ClosableIterator<IndexedRecord> rows = reader.getClosableIterator()) {
      while (rows.hasNext()) {
        IndexedRecord row = rows.next();
        if (instants == null || instants.contains(String.valueOf(row.get(0)))) {
          output.append(row);
        }
      }
    }
  }

  private HoodieSchema schema(String asOf) throws Exception {
    TableSchemaResolver resolver = new TableSchemaResolver(table);
    return asOf == null ? resolver.getTableSchema(true) : resolver.getTableSchema(asOf);
  }

  private HoodieTableFileSystemView view() {
    return FileSystemViewManager.createInMemoryFileSystemViewWithTimeline(
        new HoodieLocalEngineContext(storage),
        table,
        // The reader's default: it uses the metadata table if the table has one.
        HoodieMetadataConfig.newBuilder().enable(true).build(),
        completed);
  }

  private List<String> partitions() {
    return FSUtils.getAllPartitionPaths(
        new HoodieLocalEngineContext(storage),
        table,
        HoodieMetadataConfig.newBuilder().enable(true).build());
  }

  /** An Avro container file with rows. */
  private static final class Output implements AutoCloseable {
    private final DataFileWriter<IndexedRecord> writer;
    private long count;

    Output(String file, Schema schema) throws IOException {
      writer = new DataFileWriter<>(new GenericDatumWriter<>(schema));
      writer.create(schema, new File(file));
    }

    void append(IndexedRecord row) throws IOException {
      writer.append(row);
      count++;
    }

    @Override
    public void close() throws IOException {
      writer.close();
    }
  }
}
