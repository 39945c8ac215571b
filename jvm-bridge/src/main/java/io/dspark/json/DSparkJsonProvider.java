package io.dspark.json;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** {@code format("dspark-json")}: the answers of vLLM servers as rows. Spark makes one for each data frame. */
public final class DSparkJsonProvider implements TableProvider, DataSourceRegister {
  private SourceQuery described;

  /** For Spark's service loader. */
  public DSparkJsonProvider() {}

  @Override
  public String shortName() {
    return "dspark-json";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    described = DriverErrors.shown(() -> SourceQuery.resolve(options.asCaseSensitiveMap(), null));
    return described.declared();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    StreamPruning.ensureRegistered();
    SourceQuery query = described;
    // Spark asks for the schema first, unless the user gave one. What it found then holds for this data frame.
    if (query == null || !query.hasOptions(properties) || !query.declared().equals(schema)) {
      query = DriverErrors.shown(() -> SourceQuery.resolve(properties, schema));
    }
    return new DSparkJsonTable(query, schema);
  }

  /** Users may ask for some of the columns: {@code readStream.schema(…)}. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
