package io.dspark.json;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxBytes;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A stream of micro-batches; the worker plans them. */
final class DSparkJsonMicroBatchStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private static final Logger LOG = LoggerFactory.getLogger(DSparkJsonMicroBatchStream.class);

  private final String description;
  private final WorkerStream stream;
  private final StructType schema;
  private final TaskTotals totals = TaskTotals.registered();
  private final PartitionReaderFactory readers;

  DSparkJsonMicroBatchStream(SourceQuery query, StructType schema) {
    this.description = query.toString();
    this.stream = new WorkerStream(query, schema);
    this.schema = schema;
    this.readers = new ArrowPartitionReaderFactory(query.python(), totals);
  }

  @Override
  public Offset initialOffset() {
    return new DSparkJsonOffset(stream.initial());
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new DSparkJsonOffset(json);
  }

  /** Fixes the end of this run at what is there now. */
  @Override
  public void prepareForTriggerAvailableNow() {
    stream.fixTarget();
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    JsonNode limits = stream.limits();
    List<ReadLimit> given = new ArrayList<>();
    if (limits.hasNonNull("max_records")) {
      given.add(ReadLimit.maxRows(limits.get("max_records").asLong()));
    }
    if (limits.hasNonNull("max_bytes")) {
      given.add(ReadLimit.maxBytes(limits.get("max_bytes").asLong()));
    }
    return switch (given.size()) {
      case 0 -> ReadLimit.allAvailable();
      case 1 -> given.get(0);
      default -> ReadLimit.compositeLimit(given.toArray(new ReadLimit[0]));
    };
  }

  /** Spark calls the one with a limit instead. */
  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is the one to call");
  }

  /** The end of the next micro-batch; the start itself where nothing is new. */
  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    ObjectNode request = WorkerConnection.request("latest").put("start", start.json());
    ObjectNode limits = request.putObject("limit");
    addLimit(limits, limit);
    if (limits.isEmpty()) {
      limits.put("all", true);
    }
    return new DSparkJsonOffset(stream.ask(request).path("offset").asText());
  }

  private static void addLimit(ObjectNode limits, ReadLimit limit) {
    if (limit instanceof ReadMaxRows most) {
      limits.put("max_records", most.maxRows());
    } else if (limit instanceof ReadMaxBytes most) {
      limits.put("max_bytes", most.maxBytes());
    } else if (limit instanceof CompositeReadLimit several) {
      for (ReadLimit one : several.getReadLimits()) {
        addLimit(limits, one);
      }
    }
  }

  @Override
  public Offset reportLatestOffset() {
    JsonNode offset = stream.ask(WorkerConnection.request("report")).path("offset");
    return offset.isTextual() ? new DSparkJsonOffset(offset.asText()) : null;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    ObjectNode request = WorkerConnection.request("plan").put("start", start.json()).put("end", end.json());
    StructType columns = DSparkJsonOffset.columns(end);
    if (columns != null) {
      request.put("schema", ArrowSchemas.encode(columns));
    }
    return SplitPartition.all(stream.ask(request), columns == null ? schema : columns);
  }

  /** One for all micro-batches, so that their totals are those of the query. */
  @Override
  public PartitionReaderFactory createReaderFactory() {
    return readers;
  }

  /** Nothing to do: the checkpoint has the position, and a server keeps records by age and size. */
  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {
    stream.close();
  }

  /** For {@code lastProgress}: totals of the tasks since the query began, and what the planner counted. */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumed) {
    Map<String, String> metrics = new TreeMap<>(totals.asText());
    metrics.put("adapter", "jvm");
    try {
      stream
          .ask(WorkerConnection.request("stream_metrics"))
          .path("metrics")
          .properties()
          .forEach(metric -> add(metrics, metric.getKey(), metric.getValue()));
    } catch (RuntimeException e) {
      LOG.warn("the planner's metrics are missing from this progress: {}", e.getMessage());
    }
    return metrics;
  }

  /** Planner and tasks count the same kind of thing in some cases (records that are lost): the sum is meant. */
  private static void add(Map<String, String> metrics, String name, JsonNode value) {
    String before = metrics.get(name);
    boolean sum = before != null && value.isIntegralNumber();
    metrics.put(name, sum ? Long.toString(Long.parseLong(before) + value.asLong()) : value.asText());
  }

  /** What {@code lastProgress} and errors call this source. */
  @Override
  public String toString() {
    return description;
  }
}
