package io.dspark.json;

import java.util.Arrays;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.metric.CustomMetric;

/** What is counted of a read, under the names that users see. */
enum ReadMetric {
  RECORDS("records", "records", "records parsed", Unit.COUNT, ReadMetrics.Records::new),
  BYTES("bytes", "bytes", "bytes of JSON parsed", Unit.COUNT, ReadMetrics.Bytes::new),
  PARSE_TIME("parse_time_ms", "parse_ns", "time to parse", Unit.NANOSECONDS, ReadMetrics.ParseTime::new),
  SERIALIZE_TIME(
      "serialize_time_ms", "serialize_ns", "time to serialize", Unit.NANOSECONDS, ReadMetrics.SerializeTime::new),
  SEND_TIME("send_time_ms", "send_ns", "time to send to Spark", Unit.NANOSECONDS, ReadMetrics.SendTime::new),
  /** Counted here: how long tasks waited for the worker's next batch, receiving it included. */
  WAIT_TIME("wait_time_ms", "", "time to wait and receive", Unit.NANOSECONDS, ReadMetrics.WaitTime::new),
  /** Counted here. */
  ARROW_BYTES("arrow_bytes", "", "bytes of columns received", Unit.COUNT, ReadMetrics.ArrowBytes::new),
  MISMATCHES("mismatches", "mismatches", "values of another type", Unit.COUNT, ReadMetrics.Mismatches::new),
  INVALID("invalid", "invalid", "invalid answers", Unit.COUNT, ReadMetrics.Invalid::new),
  TRUNCATED("truncated", "truncated", "truncated answers", Unit.COUNT, ReadMetrics.Truncated::new),
  CORRUPT("corrupt_records", "corrupt", "corrupt records", Unit.COUNT, ReadMetrics.Corrupt::new),
  DROPPED("dropped_records", "dropped", "records dropped as malformed", Unit.COUNT, ReadMetrics.Dropped::new),
  FILTERED("filtered_records", "filtered", "records of other schemas", Unit.COUNT, ReadMetrics.Filtered::new),
  LOST("lost_records", "lost", "records lost", Unit.COUNT, ReadMetrics.Lost::new),
  GPU_KERNEL_TIME(
      "dspark_gpu_kernel_time_ms",
      "gpu_kernel_ms",
      "time to parse on the GPU",
      Unit.MILLISECONDS,
      ReadMetrics.GpuKernelTime::new),
  GPU_FALLBACK_RECORDS(
      "dspark_gpu_fallback_records",
      "gpu_fallback_records",
      "records the GPU left to the CPU",
      Unit.COUNT,
      ReadMetrics.GpuFallbackRecords::new),
  /** Counted here: how often a read went on with a new worker. */
  RESUMED_READS("resumed_reads", "", "reads resumed", Unit.COUNT, ReadMetrics.ResumedReads::new);

  /** How a value is counted, and so how it is shown. */
  enum Unit {
    COUNT,
    MILLISECONDS,
    NANOSECONDS;

    /** A value in whole milliseconds, if it is a time. */
    long shown(long value) {
      return this == NANOSECONDS ? value / 1_000_000 : value;
    }
  }

  /** The name, in {@code lastProgress} and among Spark's task metrics. */
  final String label;
  /** The name that the worker counts under; empty where it is counted here. */
  final String worker;
  /** The text in the SQL tab. */
  final String description;

  final Unit unit;
  private final Supplier<CustomMetric> make;

  ReadMetric(String label, String worker, String description, Unit unit, Supplier<CustomMetric> make) {
    this.label = label;
    this.worker = worker;
    this.description = description;
    this.unit = unit;
    this.make = make;
  }

  /** All of them, as Spark wants them of a scan. */
  static CustomMetric[] customMetrics() {
    return Arrays.stream(values()).map(metric -> metric.make.get()).toArray(CustomMetric[]::new);
  }
}
