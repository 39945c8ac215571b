package io.dspark.json;

import java.util.EnumSet;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2ScanRelationPushDown$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Column pruning for streams.
 *
 * <p>Spark prunes the columns of a stream once, before the optimizer runs, when all of them are still needed. This
 * rule does it again for each micro-batch: it puts a stand-in for a batch read in the place of our leaves, lets
 * Spark's own rule prune that, nested fields included, and puts the pruned leaves back. Stream, offsets and checkpoint
 * stay as they are; the columns needed travel in the end offset that is handed to {@code planInputPartitions}, and
 * never in its text.
 *
 * <p>All leaves of one stream in a plan get the same columns, those that any of them needs: Spark takes two scans of
 * one stream for equal and reads one of them where it can. A subquery is planned on its own, so nothing is pruned in
 * it, nor beside one that reads such a stream.
 *
 * <p>{@code spark.dspark.streamPruning=false} switches it off. Whatever fails in it ends with the plan as it was.
 */
public final class StreamPruning extends Rule<LogicalPlan> {
  private static final Logger LOG = LoggerFactory.getLogger(StreamPruning.class);
  private static final String SWITCH = "spark.dspark.streamPruning";
  private static final AtomicBoolean FAILED = new AtomicBoolean();

  /** For {@link DSparkJsonExtensions}. */
  public StreamPruning() {}

  /** Sees to it that this session has the rule, also where it was made before the jar was added. */
  static void ensureRegistered() {
    try {
      SparkSession session = SparkSession.active();
      if (DSparkJsonExtensions.isIn(session.extensions())) {
        return;
      }
      Seq<Rule<LogicalPlan>> rules = session.experimental().extraOptimizations();
      if (!rules.exists(rule -> rule instanceof StreamPruning)) {
        @SuppressWarnings("unchecked") // a sequence with one rule more
        Seq<Rule<LogicalPlan>> more = (Seq<Rule<LogicalPlan>>) (Seq<?>) rules.appended(new StreamPruning());
        session.experimental().extraOptimizations_$eq(more);
      }
    } catch (RuntimeException | LinkageError e) {
      warn(e);
    }
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    if (!plan.isStreaming() || plan instanceof Subquery || !isOn()) {
      return plan;
    }
    try {
      if (plan.subqueriesAll().exists(StreamPruning::readsStream)) {
        return plan;
      }
      Pruning pruning = new Pruning();
      LogicalPlan pruned = pruning.prune(plan);
      // With several leaves the first ones did not know yet what the others need.
      return pruning.leaves > 1 ? pruning.prune(plan) : pruned;
    } catch (RuntimeException | LinkageError e) {
      warn(e);
      return plan;
    }
  }

  private boolean isOn() {
    return !conf().getConfString(SWITCH, "true").equalsIgnoreCase("false");
  }

  private static void warn(Throwable e) {
    if (FAILED.compareAndSet(false, true)) {
      LOG.warn("streams are read with all their columns: pruning does not work with this version of Spark", e);
    }
  }

  private static boolean readsStream(LogicalPlan plan) {
    return isOurs(plan) || plan.children().exists(StreamPruning::readsStream);
  }

  private static boolean isOurs(LogicalPlan plan) {
    return plan instanceof StreamingDataSourceV2ScanRelation leaf && leaf.scan() instanceof DSparkJsonScan;
  }

  /** One run over a plan, or two. */
  private static final class Pruning {
    private final Map<Object, StructType> columnsByStream = new IdentityHashMap<>();
    private int leaves;

    LogicalPlan prune(LogicalPlan plan) {
      LogicalPlan below = plan;
      while (below instanceof Project || below instanceof Filter) {
        below = below.children().head();
      }
      if (!isOurs(below)) {
        return plan.mapChildren(this::prune);
      }
      StreamingDataSourceV2ScanRelation leaf = (StreamingDataSourceV2ScanRelation) below;
      Option<Offset> end = leaf.endOffset();
      if (end.isEmpty() || DSparkJsonOffset.columns(end.get()) != null) {
        return plan;
      }
      leaves++;
      LogicalPlan standIn =
          Plans.copy(
              DataSourceV2Relation.create(new StandIn(leaf, this), Option.empty(), Option.empty()),
              Map.of("output", leaf.output()));
      LogicalPlan asBatch = Plans.transformUp(plan, node -> node == leaf ? standIn : node);
      return Plans.transformUp(V2ScanRelationPushDown$.MODULE$.apply(asBatch), Pruning::backToStream);
    }

    private static LogicalPlan backToStream(LogicalPlan node) {
      if (!(node instanceof DataSourceV2ScanRelation scan) || !(scan.relation().table() instanceof StandIn standIn)) {
        return node;
      }
      StreamingDataSourceV2ScanRelation leaf = standIn.leaf;
      Offset end = DSparkJsonOffset.pruned(leaf.endOffset().get(), scan.scan().readSchema());
      return Plans.copy(
          leaf, Map.of("scan", scan.scan(), "output", scan.output(), "endOffset", Option.apply(end)));
    }

    /** The columns of a stream, with those that one more leaf of it needs. */
    StructType needed(StreamingDataSourceV2ScanRelation leaf, StructType full, StructType columns) {
      return columnsByStream.merge(leaf.stream(), columns, (a, b) -> SchemaUnion.of(full, a, b));
    }
  }

  /** A batch table in the place of a leaf. */
  private record StandIn(StreamingDataSourceV2ScanRelation leaf, Pruning pruning) implements Table, SupportsRead {
    @Override
    public String name() {
      return "dspark-json";
    }

    @Override
    @SuppressWarnings("deprecation") // columns() of all Spark versions falls back to it
    public StructType schema() {
      return leaf.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new StandInScanBuilder(this);
    }
  }

  private static final class StandInScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns {
    private final StandIn table;
    private StructType columns;

    StandInScanBuilder(StandIn table) {
      this.table = table;
      this.columns = table.schema();
    }

    @Override
    public void pruneColumns(StructType required) {
      columns = required;
    }

    @Override
    public Scan build() {
      StructType needed = table.pruning.needed(table.leaf, table.schema(), columns);
      return ((DSparkJsonScan) table.leaf.scan()).prunedTo(needed);
    }
  }
}
