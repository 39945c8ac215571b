package io.dspark.json;

import java.util.Arrays;
import org.apache.spark.sql.connector.metric.CustomMetric;

/**
 * The metrics of a scan as Spark's SQL tab shows them: it makes each by the name of its class, so each needs one.
 * {@link ReadMetric} says what they are.
 */
public final class ReadMetrics {
  private ReadMetrics() {}

  private abstract static class Shown implements CustomMetric {
    private final ReadMetric metric;

    Shown(ReadMetric metric) {
      this.metric = metric;
    }

    @Override
    public String name() {
      return metric.label;
    }

    @Override
    public String description() {
      return "dspark-json: " + metric.description;
    }

    @Override
    public String aggregateTaskMetrics(long[] values) {
      long total = metric.unit.shown(Arrays.stream(values).sum());
      if (metric.unit == ReadMetric.Unit.COUNT) {
        return String.format("%,d", total);
      }
      long most = metric.unit.shown(Arrays.stream(values).max().orElse(0));
      return String.format("%,d ms (most in a task: %,d ms)", total, most);
    }
  }

  /** {@link ReadMetric#RECORDS}. */
  public static final class Records extends Shown {
    /** For Spark. */
    public Records() {
      super(ReadMetric.RECORDS);
    }
  }

  /** {@link ReadMetric#BYTES}. */
  public static final class Bytes extends Shown {
    /** For Spark. */
    public Bytes() {
      super(ReadMetric.BYTES);
    }
  }

  /** {@link ReadMetric#PARSE_TIME}. */
  public static final class ParseTime extends Shown {
    /** For Spark. */
    public ParseTime() {
      super(ReadMetric.PARSE_TIME);
    }
  }

  /** {@link ReadMetric#SERIALIZE_TIME}. */
  public static final class SerializeTime extends Shown {
    /** For Spark. */
    public SerializeTime() {
      super(ReadMetric.SERIALIZE_TIME);
    }
  }

  /** {@link ReadMetric#SEND_TIME}. */
  public static final class SendTime extends Shown {
    /** For Spark. */
    public SendTime() {
      super(ReadMetric.SEND_TIME);
    }
  }

  /** {@link ReadMetric#WAIT_TIME}. */
  public static final class WaitTime extends Shown {
    /** For Spark. */
    public WaitTime() {
      super(ReadMetric.WAIT_TIME);
    }
  }

  /** {@link ReadMetric#ARROW_BYTES}. */
  public static final class ArrowBytes extends Shown {
    /** For Spark. */
    public ArrowBytes() {
      super(ReadMetric.ARROW_BYTES);
    }
  }

  /** {@link ReadMetric#MISMATCHES}. */
  public static final class Mismatches extends Shown {
    /** For Spark. */
    public Mismatches() {
      super(ReadMetric.MISMATCHES);
    }
  }

  /** {@link ReadMetric#INVALID}. */
  public static final class Invalid extends Shown {
    /** For Spark. */
    public Invalid() {
      super(ReadMetric.INVALID);
    }
  }

  /** {@link ReadMetric#TRUNCATED}. */
  public static final class Truncated extends Shown {
    /** For Spark. */
    public Truncated() {
      super(ReadMetric.TRUNCATED);
    }
  }

  /** {@link ReadMetric#CORRUPT}. */
  public static final class Corrupt extends Shown {
    /** For Spark. */
    public Corrupt() {
      super(ReadMetric.CORRUPT);
    }
  }

  /** {@link ReadMetric#DROPPED}. */
  public static final class Dropped extends Shown {
    /** For Spark. */
    public Dropped() {
      super(ReadMetric.DROPPED);
    }
  }

  /** {@link ReadMetric#FILTERED}. */
  public static final class Filtered extends Shown {
    /** For Spark. */
    public Filtered() {
      super(ReadMetric.FILTERED);
    }
  }

  /** {@link ReadMetric#LOST}. */
  public static final class Lost extends Shown {
    /** For Spark. */
    public Lost() {
      super(ReadMetric.LOST);
    }
  }

  /** {@link ReadMetric#GPU_KERNEL_TIME}. */
  public static final class GpuKernelTime extends Shown {
    /** For Spark. */
    public GpuKernelTime() {
      super(ReadMetric.GPU_KERNEL_TIME);
    }
  }

  /** {@link ReadMetric#GPU_FALLBACK_RECORDS}. */
  public static final class GpuFallbackRecords extends Shown {
    /** For Spark. */
    public GpuFallbackRecords() {
      super(ReadMetric.GPU_FALLBACK_RECORDS);
    }
  }

  /** {@link ReadMetric#RESUMED_READS}. */
  public static final class ResumedReads extends Shown {
    /** For Spark. */
    public ResumedReads() {
      super(ReadMetric.RESUMED_READS);
    }
  }
}
