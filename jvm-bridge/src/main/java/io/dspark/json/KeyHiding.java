package io.dspark.json;

import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Takes the server's key out of the options that Spark keeps in a plan and shows in {@code explain}. The table has it.
 */
public final class KeyHiding extends Rule<LogicalPlan> {
  private static final Logger LOG = LoggerFactory.getLogger(KeyHiding.class);

  /** For {@link DSparkJsonExtensions}. */
  public KeyHiding() {}

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    try {
      return Plans.transformUp(plan, KeyHiding::hidden);
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("explain shows the options of dspark-json with this version of Spark, the key too", e);
      return plan;
    }
  }

  private static LogicalPlan hidden(LogicalPlan node) {
    if (node instanceof StreamingRelationV2 stream && stream.table() instanceof DSparkJsonTable table) {
      return without(node, "extraOptions", stream.extraOptions(), table);
    }
    if (node instanceof DataSourceV2Relation batch && batch.table() instanceof DSparkJsonTable table) {
      return without(node, "options", batch.options(), table);
    }
    return node;
  }

  private static LogicalPlan without(
      LogicalPlan node, String field, CaseInsensitiveStringMap options, DSparkJsonTable table) {
    Map<String, String> shown = table.query().withoutSecrets(options.asCaseSensitiveMap());
    return shown.size() == options.size()
        ? node
        : Plans.copy(node, Map.of(field, new CaseInsensitiveStringMap(shown)));
  }
}
