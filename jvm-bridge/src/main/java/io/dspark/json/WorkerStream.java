package io.dspark.json;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A stream that the worker plans; opened when it is first asked for something, and again where the worker is a new one.
 *
 * <p>It remembers what a new worker has to be told: where the stream began and where it is to end.
 */
final class WorkerStream {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerStream.class);

  private final SourceQuery query;
  private final StructType schema;
  private String id;
  private JsonNode limits;
  private String initial;
  private String target;

  WorkerStream(SourceQuery query, StructType schema) {
    this.query = query;
    this.schema = schema;
  }

  /** Where the stream begins. */
  synchronized String initial() {
    initial = ask(WorkerConnection.request("initial")).path("offset").asText();
    return initial;
  }

  /** Nothing that comes from now on is planned any more. */
  synchronized void fixTarget() {
    target = ask(WorkerConnection.request("fix_target")).path("target").asText();
  }

  /** The most that the options allow of a micro-batch. */
  synchronized JsonNode limits() {
    open();
    return limits;
  }

  /** Asks for something; errors as {@link WorkerAnswer#checked}. */
  synchronized ObjectNode ask(ObjectNode request) {
    open();
    ObjectNode answer = Workers.ask(query.python(), request.put("stream", id));
    if (WorkerAnswer.isUnknownStream(answer)) {
      LOG.info("{} is opened again: its Python worker is a new one", query);
      id = null;
      open();
      answer = Workers.ask(query.python(), request.put("stream", id));
    }
    return WorkerAnswer.checked(answer);
  }

  private void open() {
    if (id != null) {
      return;
    }
    ObjectNode request = query.request("open_stream", schema);
    if (initial != null) {
      request.put("initial", initial);
    }
    if (target != null) {
      request.put("target", target);
    }
    ObjectNode answer = WorkerAnswer.checked(Workers.ask(query.python(), request));
    limits = answer.path("limits");
    id = answer.path("stream").asText();
  }

  /** Lets the worker forget the stream; what is missing for it is no reason to fail a query that ends. */
  synchronized void close() {
    if (id == null) {
      return;
    }
    ObjectNode request = WorkerConnection.request("close_stream").put("stream", id);
    id = null;
    try {
      Workers.askIfRunning(query.python(), request);
    } catch (RuntimeException e) {
      LOG.debug("{} is not closed in the worker: {}", query, e.getMessage());
    }
  }
}
