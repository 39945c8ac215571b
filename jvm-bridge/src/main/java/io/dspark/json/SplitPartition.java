package io.dspark.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.types.StructType;

/** A split, as Spark carries it to a task. The key of the server is in its task text; nothing shows that. */
final class SplitPartition implements InputPartition {
  private static final long serialVersionUID = 1L;

  private final String task;
  private final String split;
  private final StructType columns;
  private final String[] hosts;

  private SplitPartition(String task, String split, StructType columns, String[] hosts) {
    this.task = task;
    this.split = split;
    this.columns = columns;
    this.hosts = hosts;
  }

  /** A partition that may be read anywhere. */
  static SplitPartition of(String task, String split, StructType columns) {
    return new SplitPartition(task, split, columns, new String[0]);
  }

  /** The partitions of an answer to {@code plan} or {@code plan_batch}. */
  static InputPartition[] all(JsonNode answer, StructType columns) {
    String task = answer.path("task").asText();
    List<InputPartition> partitions = new ArrayList<>();
    for (JsonNode split : answer.path("splits")) {
      String[] hosts = hosts(split.path("hosts"));
      partitions.add(new SplitPartition(task, split.path("split").asText(), columns, hosts));
    }
    return partitions.toArray(new InputPartition[0]);
  }

  private static String[] hosts(JsonNode named) {
    List<String> hosts = new ArrayList<>();
    named.forEach(host -> hosts.add(host.asText()));
    SparkEnv env = SparkEnv.get();
    if (!hosts.isEmpty() && env != null) {
      // The driver's own machine, under the name that Spark has for it: often an address.
      String here = env.blockManager().blockManagerId().host();
      if (!hosts.contains(here)) {
        hosts.add(here);
      }
    }
    return hosts.toArray(new String[0]);
  }

  /** What the worker needs to read any split of the query. */
  String task() {
    return task;
  }

  /** The records, as the worker names them. */
  String split() {
    return split;
  }

  /** The columns of the rows. */
  StructType columns() {
    return columns;
  }

  @Override
  public String[] preferredLocations() {
    return hosts.clone();
  }

  @Override
  public String toString() {
    return split;
  }
}
