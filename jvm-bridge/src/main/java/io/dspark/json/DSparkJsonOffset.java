package io.dspark.json;

import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.types.StructType;

/** A position in the stream: the text that the worker gave, to the byte, since Spark compares texts. */
final class DSparkJsonOffset extends Offset {
  private final String json;
  private final StructType columns;

  DSparkJsonOffset(String json) {
    this(json, null);
  }

  private DSparkJsonOffset(String json, StructType columns) {
    this.json = json;
    this.columns = columns;
  }

  /** The same position as the end of a micro-batch that reads only these columns. */
  static DSparkJsonOffset pruned(Offset end, StructType columns) {
    return new DSparkJsonOffset(end.json(), columns);
  }

  /** What is read of a micro-batch with this end; null where that is all columns. */
  static StructType columns(Offset end) {
    return end instanceof DSparkJsonOffset ours ? ours.columns : null;
  }

  @Override
  public String json() {
    return json;
  }
}
