package io.dspark.json;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.util.LongAccumulator;

/**
 * The counts of all tasks of a stream that succeeded, added up on the driver.
 *
 * <p>They are accumulators of Spark's own class: one of ours could not be read where the jar came with {@code ADD JAR}.
 */
final class TaskTotals implements Serializable {
  private static final long serialVersionUID = 1L;

  private final LongAccumulator[] totals;

  private TaskTotals(LongAccumulator[] totals) {
    this.totals = totals;
  }

  /** Totals that this Spark keeps. */
  static TaskTotals registered() {
    SparkContext context = SparkContext.getOrCreate();
    LongAccumulator[] totals = new LongAccumulator[ReadMetric.values().length];
    for (int i = 0; i < totals.length; i++) {
      totals[i] = new LongAccumulator();
      context.register(totals[i]); // without a name: the SQL tab has the counts of each scan
    }
    return new TaskTotals(totals);
  }

  /** Adds the counts of a read, by the order of {@link ReadMetric}. */
  void add(long[] counts) {
    for (int i = 0; i < totals.length; i++) {
      totals[i].add(counts[i]);
    }
  }

  /** By name, times in milliseconds. */
  Map<String, String> asText() {
    Map<String, String> texts = new TreeMap<>();
    for (ReadMetric metric : ReadMetric.values()) {
      texts.put(metric.label, Long.toString(metric.unit.shown(totals[metric.ordinal()].sum())));
    }
    return texts;
  }
}
