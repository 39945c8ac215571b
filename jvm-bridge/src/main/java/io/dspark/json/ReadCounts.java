package io.dspark.json;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What has been counted of one read so far. */
final class ReadCounts {
  private static final ReadMetric[] METRICS = ReadMetric.values();

  private final long[] values = new long[METRICS.length];

  void add(ReadMetric metric, long value) {
    values[metric.ordinal()] += value;
  }

  /** Adds what the worker has counted. */
  void addAll(JsonNode counted) {
    for (ReadMetric metric : METRICS) {
      if (!metric.worker.isEmpty()) {
        add(metric, counted.path(metric.worker).asLong());
      }
    }
  }

  /** By the order of {@link ReadMetric}. */
  long[] values() {
    return values.clone();
  }

  CustomTaskMetric[] taskMetrics() {
    CustomTaskMetric[] metrics = new CustomTaskMetric[METRICS.length];
    for (int i = 0; i < metrics.length; i++) {
      metrics[i] = new TaskMetric(METRICS[i].label, values[i]);
    }
    return metrics;
  }

  private record TaskMetric(String name, long value) implements CustomTaskMetric {}
}
