package io.dspark.json;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The workers of this process: one an interpreter, started when first needed, and anew when it is gone. */
final class Workers {
  private static final Logger LOG = LoggerFactory.getLogger(Workers.class);
  private static final int TRIES = 3;

  private static final Map<PythonCommand, Worker> RUNNING = new HashMap<>();

  private Workers() {}

  /** The worker that this interpreter runs. */
  static synchronized Worker get(PythonCommand command) throws IOException {
    Worker worker = RUNNING.get(command);
    if (worker != null && worker.isAlive()) {
      return worker;
    }
    if (worker != null) {
      worker.destroy();
      RUNNING.remove(command);
      LOG.warn("{} is gone; a new one is started", worker);
    }
    worker = Worker.start(command);
    RUNNING.put(command, worker);
    return worker;
  }

  /**
   * Asks the worker for something that can be asked again, and returns its answer, whatever that says.
   *
   * @throws DSparkJsonException where the worker can't be started, or is lost again and again
   */
  static ObjectNode ask(PythonCommand command, ObjectNode request) {
    try {
      for (int attempt = 1; ; attempt++) {
        try {
          return askOnce(get(command), request);
        } catch (WorkerLostException e) {
          if (attempt == TRIES) {
            throw e.asError();
          }
          LOG.warn("{}; it is asked again", e.getMessage());
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Tells the worker something that does not matter where it is gone. */
  static void askIfRunning(PythonCommand command, ObjectNode request) {
    Worker worker;
    synchronized (Workers.class) {
      worker = RUNNING.get(command);
    }
    if (worker != null && worker.isAlive()) {
      try {
        askOnce(worker, request);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  private static ObjectNode askOnce(Worker worker, ObjectNode request) throws IOException {
    WorkerConnection connection = worker.take();
    try {
      ObjectNode answer = connection.ask(request);
      worker.giveBack(connection);
      return answer;
    } catch (IOException | RuntimeException e) {
      connection.close();
      throw e;
    }
  }
}
