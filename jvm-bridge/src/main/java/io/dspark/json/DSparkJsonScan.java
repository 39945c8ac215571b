package io.dspark.json;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A read of some columns. */
final class DSparkJsonScan implements Scan {
  private final SourceQuery query;
  private final StructType schema;
  private final StructType columns;
  private Batch batch;

  /**
   * A read.
   *
   * @param schema that of the data frame
   * @param columns what is needed of it
   */
  DSparkJsonScan(SourceQuery query, StructType schema, StructType columns) {
    this.query = query;
    this.schema = schema;
    this.columns = columns;
  }

  /** The same read of fewer columns. */
  DSparkJsonScan prunedTo(StructType fewer) {
    return new DSparkJsonScan(query, schema, fewer);
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return query + " [jvm] ReadSchema: " + columns.catalogString();
  }

  /** All copies of a plan share one batch: records that arrive between them change nothing. */
  @Override
  public synchronized Batch toBatch() {
    if (batch == null) {
      batch = new DSparkJsonBatch(query, schema, columns);
    }
    return batch;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new DSparkJsonMicroBatchStream(query, columns);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return ReadMetric.customMetrics();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }
}
