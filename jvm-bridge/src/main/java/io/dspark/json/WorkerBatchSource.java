package io.dspark.json;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.spark.sql.util.ArrowUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The rows of a split, as the worker parses them.
 *
 * <p>A worker that dies in the middle costs nothing but time: the read goes on with a new one after the rows that were
 * handed over, since the same read always gives the same rows. Plain local Spark never tries a task again.
 */
final class WorkerBatchSource implements BatchSource {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerBatchSource.class);
  /** Tries in a row that bring no row. */
  private static final int TRIES = 3;

  private final PythonCommand python;
  private final SplitPartition partition;
  private final int attempt;
  private final ReadCounts counts;
  private final BufferAllocator allocator;

  private Worker worker;
  private WorkerConnection connection;
  private ArrowStream stream;
  private long rowsOfConnection;
  private long rows;
  private String began;
  private int failures;
  private boolean closed;

  WorkerBatchSource(PythonCommand python, SplitPartition partition, int attempt, ReadCounts counts) {
    this.python = python;
    this.partition = partition;
    this.attempt = attempt;
    this.counts = counts;
    this.allocator = ArrowUtils.rootAllocator().newChildAllocator("dspark-json", 0, Long.MAX_VALUE);
  }

  @Override
  public ArrowBatch next() throws IOException {
    long started = System.nanoTime();
    try {
      while (true) {
        try {
          if (connection == null) {
            open();
          }
          return nextOfConnection();
        } catch (WorkerLostException e) {
          disconnect();
          failures++;
          if (failures >= TRIES) {
            throw e.asError();
          }
          counts.add(ReadMetric.RESUMED_READS, 1);
          LOG.warn("{}; the read of {} goes on after row {} with a new one", e.getMessage(), partition, rows);
        }
      }
    } catch (IOException | RuntimeException e) {
      disconnect();
      throw e;
    } finally {
      counts.add(ReadMetric.WAIT_TIME, System.nanoTime() - started);
    }
  }

  private void open() throws IOException {
    worker = Workers.get(python);
    connection = worker.take();
    ObjectNode request = WorkerConnection.request("read");
    request.put("task", partition.task()).put("split", partition.split());
    request.put("attempt", attempt).put("skip_rows", rows);
    if (began != null) {
      request.put("began", began);
    }
    ObjectNode answer = answer(connection.ask(request));
    if (rows == 0) {
      began = answer.path("began").textValue();
    }
    rowsOfConnection = 0;
    stream = new ArrowStream(connection, allocator);
    try {
      ArrowSchemas.check(stream.readSchema(), partition.columns());
    } catch (RuntimeException e) {
      throw WorkerConnection.broken("a schema that can't be read: " + e.getMessage(), e);
    }
  }

  private ArrowBatch nextOfConnection() throws IOException {
    long before = connection.bytesRead();
    ArrowBatch batch;
    try {
      batch = stream.nextBatch();
    } catch (RuntimeException e) {
      throw WorkerConnection.broken("bytes that can't be read: " + e.getMessage(), e);
    }
    counts.add(ReadMetric.ARROW_BYTES, connection.bytesRead() - before);
    if (batch == null) {
      finish();
      return null;
    }
    if (batch.rows() > 0) {
      rowsOfConnection += batch.rows();
      rows += batch.rows();
      failures = 0;
    }
    return batch;
  }

  /** Only the last frame says that the rows were whole. */
  private void finish() throws IOException {
    JsonNode last = answer(connection.receive());
    if (last.path("rows").asLong(-1) != rowsOfConnection) {
      throw WorkerConnection.broken(rowsOfConnection + " rows and says that it were " + last.path("rows"), null);
    }
    counts.addAll(last.path("metrics"));
    stream.close();
    stream = null;
    worker.giveBack(connection);
    connection = null;
  }

  /** An answer; an error leaves the connection as good as new. */
  private ObjectNode answer(ObjectNode answer) {
    if (!answer.path("ok").asBoolean()) {
      worker.giveBack(connection);
      connection = null;
    }
    return WorkerAnswer.checked(answer);
  }

  /** A worker whose answer has not been read to its end is of no use to others: it stops sending then. */
  private void disconnect() {
    if (stream != null) {
      stream.close();
      stream = null;
    }
    if (connection != null) {
      connection.close();
      connection = null;
    }
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      disconnect();
      allocator.close();
    }
  }
}
