package io.dspark.json;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.sql.types.StructType;

/**
 * What a data frame of this source asks for: the options, and the types of its rows as they were resolved once, when it
 * was made.
 *
 * <p>Options hold the key of the server; nothing here shows them.
 */
final class SourceQuery {
  private final Map<String, String> options;
  private final PythonCommand python;
  private final StructType declared;
  private final String rows;
  private final Set<String> secrets;

  private SourceQuery(
      Map<String, String> options, PythonCommand python, StructType declared, String rows, Set<String> secrets) {
    this.options = options;
    this.python = python;
    this.declared = declared;
    this.rows = rows;
    this.secrets = secrets;
  }

  /**
   * Resolves the rows.
   *
   * @param user the schema that the user gave; null where there is none
   * @param table whether the options are those of a table of a catalog, which everybody may see: a key is refused then
   * @throws IllegalArgumentException where options or schema can't be taken as given
   */
  static SourceQuery resolve(Map<String, String> options, StructType user, boolean table) {
    Map<String, String> copy = new TreeMap<>(options);
    PythonCommand python = PythonCommand.onDriver(copy);
    ObjectNode request = WorkerConnection.request("describe");
    request.set("options", WorkerConnection.object(copy.entrySet()));
    request.put("table", table || isTable(copy));
    if (user != null) {
      request.put("schema", ArrowSchemas.encode(user));
    }
    ObjectNode answer = WorkerAnswer.checked(Workers.ask(python, request));
    StructType declared = ArrowSchemas.decode(answer.path("schema").asText());
    Set<String> secrets = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
    answer.path("secrets").forEach(name -> secrets.add(name.asText()));
    return new SourceQuery(copy, python, declared, answer.path("rows").asText(), secrets);
  }

  /** Whether Spark gives the properties of a table that is being made: only among those it names the source. */
  static boolean isTable(Map<String, String> options) {
    return options.containsKey("provider");
  }

  /** The same rows with further options, which win over those that are there. */
  SourceQuery with(Map<String, String> more) {
    if (options.entrySet().containsAll(more.entrySet())) {
      return this;
    }
    Map<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    all.putAll(options);
    all.putAll(more);
    return new SourceQuery(all, PythonCommand.onDriver(all), declared, rows, secrets);
  }

  boolean hasOptions(Map<String, String> others) {
    return options.equals(others);
  }

  /** Those of some options that may be shown. */
  Map<String, String> withoutSecrets(Map<String, String> some) {
    Map<String, String> shown = new TreeMap<>(some);
    shown.keySet().removeIf(secrets::contains);
    return shown;
  }

  /** All columns there are. */
  StructType declared() {
    return declared;
  }

  PythonCommand python() {
    return python;
  }

  /** A request that says what is asked for; {@code schema} is that of the data frame. */
  ObjectNode request(String operation, StructType schema) {
    ObjectNode request = WorkerConnection.request(operation);
    request.set("options", WorkerConnection.object(options.entrySet()));
    return request.put("rows", rows).put("schema", ArrowSchemas.encode(schema));
  }

  /** Where the answers come from: what may be shown of the options. */
  String origin() {
    for (Map.Entry<String, String> option : options.entrySet()) {
      if (option.getKey().equalsIgnoreCase("vllm_endpoint") || option.getKey().equalsIgnoreCase("path")) {
        return option.getValue();
      }
    }
    return "";
  }

  @Override
  public String toString() {
    return "dspark-json " + origin();
  }
}
