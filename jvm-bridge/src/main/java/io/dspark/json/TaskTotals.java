package io.dspark.json;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.util.AccumulatorV2;

/** The counts of all tasks of a stream that succeeded, added up on the driver. By the order of {@link ReadMetric}. */
final class TaskTotals extends AccumulatorV2<long[], long[]> {
  private static final long serialVersionUID = 1L;

  private final long[] totals = new long[ReadMetric.values().length];

  /** Totals that this Spark keeps. */
  static TaskTotals registered() {
    TaskTotals totals = new TaskTotals();
    SparkContext.getOrCreate().register(totals, "dspark-json");
    return totals;
  }

  /** By name, times in milliseconds. */
  Map<String, String> asText() {
    Map<String, String> texts = new TreeMap<>();
    long[] values = value();
    for (ReadMetric metric : ReadMetric.values()) {
      texts.put(metric.label, Long.toString(metric.unit.shown(values[metric.ordinal()])));
    }
    return texts;
  }

  @Override
  public synchronized boolean isZero() {
    for (long total : totals) {
      if (total != 0) {
        return false;
      }
    }
    return true;
  }

  @Override
  public TaskTotals copy() {
    TaskTotals copy = new TaskTotals();
    copy.add(value());
    return copy;
  }

  @Override
  public synchronized void reset() {
    java.util.Arrays.fill(totals, 0);
  }

  @Override
  public synchronized void add(long[] counts) {
    for (int i = 0; i < totals.length; i++) {
      totals[i] += counts[i];
    }
  }

  @Override
  public void merge(AccumulatorV2<long[], long[]> other) {
    add(other.value());
  }

  @Override
  public synchronized long[] value() {
    return totals.clone();
  }
}
