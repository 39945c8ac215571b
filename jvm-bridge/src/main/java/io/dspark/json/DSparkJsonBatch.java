package io.dspark.json;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

/** A read of all that is there when it is planned. */
final class DSparkJsonBatch implements Batch {
  private final SourceQuery query;
  private final StructType schema;
  private final StructType columns;
  private InputPartition[] partitions;

  DSparkJsonBatch(SourceQuery query, StructType schema, StructType columns) {
    this.query = query;
    this.schema = schema;
    this.columns = columns;
  }

  @Override
  public synchronized InputPartition[] planInputPartitions() {
    if (partitions == null) {
      ObjectNode request = query.request("plan_batch", schema).put("columns", ArrowSchemas.encode(columns));
      ObjectNode answer = DriverErrors.shown(() -> WorkerAnswer.checked(Workers.ask(query.python(), request)));
      partitions = SplitPartition.all(answer, columns);
    }
    return partitions;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ArrowPartitionReaderFactory(query.python(), null);
  }
}
