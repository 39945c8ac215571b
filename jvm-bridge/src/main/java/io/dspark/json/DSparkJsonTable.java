package io.dspark.json;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Answers as a table that can be read, at once or as a stream. */
final class DSparkJsonTable implements Table, SupportsRead {
  private final SourceQuery query;
  private final StructType schema;

  DSparkJsonTable(SourceQuery query, StructType schema) {
    this.query = query;
    this.schema = schema;
  }

  SourceQuery query() {
    return query;
  }

  @Override
  public String name() {
    return query.toString();
  }

  @Override
  @SuppressWarnings("deprecation") // columns() of all Spark versions falls back to it
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new DSparkJsonScanBuilder(query.with(options.asCaseSensitiveMap()), schema);
  }
}
