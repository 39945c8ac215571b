package io.dspark.json;

import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.BoxedUnit;

/**
 * Adds {@link StreamPruning} and {@link KeyHiding} to every session that is made while the jar is there; Spark finds it
 * among the services of the class path.
 */
public final class DSparkJsonExtensions implements SparkSessionExtensionsProvider {
  private static final Set<SparkSessionExtensions> ADDED =
      Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

  /** For Spark's service loader. */
  public DSparkJsonExtensions() {}

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectResolutionRule(session -> new KeyHiding());
    // Where Spark prunes the columns of batch reads has passed by then, and joins have yet to be planned by size.
    extensions.injectPreCBORule(session -> new StreamPruning());
    ADDED.add(extensions);
    return BoxedUnit.UNIT;
  }

  /** Whether sessions with these extensions have the rule. */
  static boolean isIn(SparkSessionExtensions extensions) {
    return ADDED.contains(extensions);
  }
}
