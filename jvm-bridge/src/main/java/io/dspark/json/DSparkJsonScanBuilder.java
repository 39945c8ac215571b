package io.dspark.json;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;

/** Leaves out the columns and nested fields that nobody needs: only what is read is parsed. */
final class DSparkJsonScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns {
  private final SourceQuery query;
  private final StructType schema;
  private StructType columns;

  DSparkJsonScanBuilder(SourceQuery query, StructType schema) {
    this.query = query;
    this.schema = schema;
    this.columns = schema;
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  @Override
  public Scan build() {
    return new DSparkJsonScan(query, schema, columns);
  }
}
