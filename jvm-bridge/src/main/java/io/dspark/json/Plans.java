package io.dspark.json;

import java.util.HashMap;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/** Changes logical plans of Spark, in ways that do not depend on its version. */
final class Plans {
  private Plans() {}

  /** A plan with every node replaced by what {@code change} makes of it, from the leaves up. */
  static LogicalPlan transformUp(LogicalPlan plan, UnaryOperator<LogicalPlan> change) {
    return change.apply(plan.mapChildren(child -> transformUp(child, change)));
  }

  /**
   * A copy of a node with some fields changed, by name: {@code copy} takes all fields, and each version has others.
   *
   * @throws IllegalStateException where the node has no such field
   */
  static LogicalPlan copy(LogicalPlan node, Map<String, Object> changes) {
    Object[] fields = new Object[node.productArity()];
    Map<String, Object> left = new HashMap<>(changes);
    for (int i = 0; i < fields.length; i++) {
      String name = node.productElementName(i);
      fields[i] = left.containsKey(name) ? left.remove(name) : node.productElement(i);
    }
    if (!left.isEmpty()) {
      throw new IllegalStateException(node.getClass().getSimpleName() + " has no " + left.keySet());
    }
    return node.makeCopy(fields);
  }
}
