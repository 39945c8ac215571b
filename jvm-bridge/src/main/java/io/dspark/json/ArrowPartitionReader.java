package io.dspark.json;

import java.io.IOException;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Shows batches to Spark as columns: the same columns each time, bound to the next batch. */
final class ArrowPartitionReader implements PartitionReader<ColumnarBatch> {
  private final BatchSource source;
  private final ArrowColumn[] columns;
  private final ColumnarBatch batch;
  private final ReadCounts counts;
  private final TaskTotals totals;
  private boolean done;

  ArrowPartitionReader(BatchSource source, StructType schema, ReadCounts counts, TaskTotals totals) {
    this.source = source;
    this.columns = ArrowColumn.of(schema);
    this.batch = new ColumnarBatch(columns);
    this.counts = counts;
    this.totals = totals;
  }

  @Override
  public boolean next() throws IOException {
    if (done) {
      return false;
    }
    ArrowBatch next = source.next();
    if (next == null) {
      done = true;
      batch.setNumRows(0);
      if (totals != null) {
        totals.add(counts.values());
      }
      return false;
    }
    try {
      next.bind(columns);
      batch.setNumRows(next.rows());
    } catch (RuntimeException e) {
      throw WorkerConnection.broken("a batch that can't be read: " + e.getMessage(), e);
    }
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return counts.taskMetrics();
  }

  @Override
  public void close() throws IOException {
    done = true;
    batch.setNumRows(0);
    source.close();
  }
}
