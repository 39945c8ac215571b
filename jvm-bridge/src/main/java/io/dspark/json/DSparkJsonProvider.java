package io.dspark.json;

import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.SchemaRelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/** {@code format("dspark-json")}: the answers of vLLM servers as rows. Spark makes one for each data frame. */
public final class DSparkJsonProvider
    implements TableProvider,
        DataSourceRegister,
        RelationProvider,
        SchemaRelationProvider,
        CreatableRelationProvider,
        StreamSinkProvider {
  static final String NAME = "dspark-json";

  private SourceQuery described;

  /** For Spark's service loader. */
  public DSparkJsonProvider() {}

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    described = DriverErrors.shown(() -> SourceQuery.resolve(options.asCaseSensitiveMap(), null, false));
    return described.declared();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    StreamPruning.ensureRegistered();
    SourceQuery query = described;
    // Spark asks for the schema first, unless the user gave one. What it found then holds for this data frame.
    if (query == null || !query.hasOptions(properties) || !query.declared().equals(schema)) {
      try {
        query = DriverErrors.shown(() -> SourceQuery.resolve(properties, schema, false));
      } catch (Exception e) {
        if (SourceQuery.isTable(properties)) {
          throw DriverErrors.again(e); // it must not be made
        }
        return new UnreadableTable(schema, e); // what it is asked for next tells a read from a write
      }
    }
    return new DSparkJsonTable(query, schema);
  }

  /** A table of a catalog that is not Spark's own, when it is made. */
  @Override
  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map<String, String> options) {
    Map<String, String> given = CollectionConverters.asJava(options);
    StructType declared = DriverErrors.shown(() -> SourceQuery.resolve(given, null, true)).declared();
    return new DSparkJsonRelation(context, given, declared);
  }

  /** Such a table, when it is made with columns or read. */
  @Override
  public BaseRelation createRelation(
      SQLContext context, scala.collection.immutable.Map<String, String> options, StructType schema) {
    Map<String, String> given = CollectionConverters.asJava(options);
    DriverErrors.shown(() -> SourceQuery.resolve(given, schema, true));
    return new DSparkJsonRelation(context, given, schema);
  }

  /** {@code df.write}: refused. */
  @Override
  public BaseRelation createRelation(
      SQLContext context,
      SaveMode mode,
      scala.collection.immutable.Map<String, String> options,
      Dataset<Row> data) {
    throw DriverErrors.visible(DSparkJsonException.sourceOnly());
  }

  /** {@code df.writeStream}: refused. */
  @Override
  public Sink createSink(
      SQLContext context,
      scala.collection.immutable.Map<String, String> options,
      scala.collection.immutable.Seq<String> partitioning,
      OutputMode mode) {
    throw DriverErrors.visible(DSparkJsonException.sourceOnly());
  }

  /** Users may ask for some of the columns: {@code readStream.schema(…)}. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
