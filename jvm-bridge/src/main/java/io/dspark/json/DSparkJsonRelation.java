package io.dspark.json;

import java.util.Arrays;
import java.util.Map;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.PrunedScan;
import org.apache.spark.sql.types.StructType;

/**
 * A table of a catalog, in the older form of a source: where the session catalog is not Spark's own (but Delta's,
 * say) Spark reads tables in no other. It is a query to the same source; nested fields are not pruned.
 */
final class DSparkJsonRelation extends BaseRelation implements PrunedScan {
  private final SQLContext context;
  private final Map<String, String> options;
  private final StructType schema;

  DSparkJsonRelation(SQLContext context, Map<String, String> options, StructType schema) {
    this.context = context;
    this.options = options;
    this.schema = schema;
  }

  @Override
  public SQLContext sqlContext() {
    return context;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  /** The rows are Spark's internal ones, as a query gives them. */
  @Override
  public boolean needConversion() {
    return false;
  }

  @Override
  @SuppressWarnings("unchecked") // what needConversion() says
  public RDD<Row> buildScan(String[] columns) {
    Column[] selected = Arrays.stream(columns).map(name -> functions.col("`" + name + "`")).toArray(Column[]::new);
    Dataset<Row> rows =
        (Dataset<Row>)
            context.sparkSession().read().format(DSparkJsonProvider.NAME).schema(schema).options(options).load();
    RDD<InternalRow> internal = rows.select(selected).queryExecution().toRdd();
    return (RDD<Row>) (RDD<?>) internal;
  }

  @Override
  public String toString() {
    return DSparkJsonProvider.NAME;
  }
}
