package io.dspark.json;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of tasks, on the executors. */
final class ArrowPartitionReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final PythonCommand python;
  private final TaskTotals totals;

  /**
   * A factory.
   *
   * @param totals where tasks add their counts; null where nobody asks for them
   */
  ArrowPartitionReaderFactory(PythonCommand python, TaskTotals totals) {
    this.python = python;
    this.totals = totals;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  /** Never called: reads are columnar. */
  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("dspark-json reads columns");
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    SplitPartition split = (SplitPartition) partition;
    TaskContext context = TaskContext.get();
    int attempt = context == null ? 0 : context.attemptNumber();
    ReadCounts counts = new ReadCounts();
    BatchSource source = new WorkerBatchSource(python.onExecutor(), split, attempt, counts);
    return new ArrowPartitionReader(source, split.columns(), counts, totals);
  }
}
