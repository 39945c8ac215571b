package io.dspark.json;

import java.util.function.Supplier;
import org.apache.spark.sql.execution.QueryExecutionException;

/**
 * Lets PySpark show an error of ours by its own text where a data frame is made or a batch is planned.
 *
 * <p>It knows some exceptions of Spark and shows all others as a Java stack trace. A stream needs none of this: its
 * errors come in a {@code StreamingQueryException}.
 */
final class DriverErrors {
  private DriverErrors() {}

  /** What {@code work} gives; its {@code DSparkJsonException} becomes the cause of one that PySpark knows. */
  static <T> T shown(Supplier<T> work) {
    try {
      return work.get();
    } catch (DSparkJsonException e) {
      throw visible(e);
    }
  }

  /** An exception that PySpark knows, with the text of this one. It is thrown here, being a checked one. */
  static RuntimeException visible(DSparkJsonException e) {
    throw DriverErrors.<RuntimeException>unchecked(new QueryExecutionException(e.getMessage(), e));
  }

  /** Throws an exception again, checked or not. */
  static RuntimeException again(Exception e) {
    throw DriverErrors.<RuntimeException>unchecked(e);
  }

  @SuppressWarnings("unchecked") // Spark's callers are Scala, which has no checked exceptions
  private static <E extends Throwable> E unchecked(Throwable e) throws E {
    throw (E) e;
  }
}
