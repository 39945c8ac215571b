package io.dspark.json;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.Deque;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A Python process that plans and parses, and the connections to it.
 *
 * <p>It listens on a socket in a folder that only this user can enter, takes only connections that show a token, which
 * it got over its standard input, and ends when that closes: with this process, however it ends.
 */
final class Worker {
  private static final int START_SECONDS = 60;
  private static final int EXIT_MILLISECONDS = 500;
  /** Exit codes above this one are signals. */
  private static final int SIGNALS = 128;

  private static final int TOKEN_BYTES = 32;
  private static final int IDLE_CONNECTIONS = 32;
  /** A socket's path has 107 bytes at most; the rest is for the folder's random part and the socket's name. */
  private static final int LONGEST_FOLDER = 70;

  private final PythonCommand command;
  private final Path socket;
  private final String token;
  private final Process process;
  private final WorkerLog log = new WorkerLog();
  private final Deque<WorkerConnection> idle = new ConcurrentLinkedDeque<>();

  private Worker(PythonCommand command, Path socket) throws IOException {
    this.command = command;
    this.socket = socket;
    byte[] random = new byte[TOKEN_BYTES];
    new SecureRandom().nextBytes(random);
    token = HexFormat.of().formatHex(random);
    ProcessBuilder builder = new ProcessBuilder(command.workerAt(socket.toString()));
    Map<String, String> environment = builder.environment();
    // Modules come from where Python is told to look for them, not from wherever Spark happens to run.
    environment.put("PYTHONSAFEPATH", "1");
    if (!command.path().isEmpty()) {
      String before = environment.get("PYTHONPATH");
      boolean alone = before == null || before.isEmpty();
      environment.put("PYTHONPATH", alone ? command.path() : command.path() + java.io.File.pathSeparator + before);
    }
    process = builder.start();
  }

  /**
   * Starts a worker and waits until it listens.
   *
   * @throws DSparkJsonException where it does not come up; the text has the command that was tried
   */
  static Worker start(PythonCommand command) throws IOException {
    Path folder = folder();
    Worker worker;
    try {
      worker = new Worker(command, folder.resolve("s"));
    } catch (IOException e) {
      Files.deleteIfExists(folder);
      throw startError(command, "can't be run: " + e.getMessage(), "", e);
    }
    worker.process.onExit().thenRun(worker::removeSocket);
    try {
      worker.waitUntilReady();
      return worker;
    } catch (IOException | RuntimeException e) {
      worker.destroy();
      throw e;
    }
  }

  private static Path folder() throws IOException {
    Path temporary = Path.of(System.getProperty("java.io.tmpdir")).toAbsolutePath();
    boolean fits = temporary.toString().getBytes(StandardCharsets.UTF_8).length <= LONGEST_FOLDER;
    return Files.createTempDirectory(
        fits ? temporary : Path.of("/tmp"),
        "dspark-json-",
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
  }

  private void waitUntilReady() throws IOException {
    CompletableFuture<JsonNode> ready = new CompletableFuture<>();
    Thread reader = new Thread(() -> readOutput(ready), "dspark-json-worker-output");
    reader.setDaemon(true);
    reader.start();
    Thread errors = log.follow(process.getErrorStream());
    try {
      OutputStream input = process.getOutputStream(); // stays open: its end is the worker's
      input.write((token + "\n").getBytes(StandardCharsets.US_ASCII));
      input.flush();
    } catch (IOException e) {
      ready.complete(null); // it ended at once; what it said is told below
    }
    try {
      JsonNode hello = ready.get(START_SECONDS, TimeUnit.SECONDS);
      if (hello == null) {
        errors.join(EXIT_MILLISECONDS);
        if (wasKilled()) {
          throw lost("was killed while it started", null);
        }
        throw startError(command, "ended before it was ready" + exitCode(), log.tail(), null);
      }
      checkVersion(hello);
    } catch (TimeoutException e) {
      throw startError(command, "was not ready within " + START_SECONDS + " s", log.tail(), null);
    } catch (ExecutionException e) {
      throw new UncheckedIOException(new IOException(e.getCause()));
    } catch (InterruptedException e) {
      throw (InterruptedIOException) new InterruptedIOException("while a Python worker starts").initCause(e);
    }
  }

  /** Waits for the line that says that it listens; null where its output ends before. */
  private void readOutput(CompletableFuture<JsonNode> ready) {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        JsonNode hello = ready.isDone() ? null : readyLine(line);
        if (hello == null) {
          log.add(line);
        } else {
          ready.complete(hello);
        }
      }
    } catch (IOException e) {
      // The process is gone, and its output with it.
    }
    ready.complete(null);
  }

  private static JsonNode readyLine(String line) {
    try {
      JsonNode node = WorkerConnection.parse(line.getBytes(StandardCharsets.UTF_8));
      return node != null && node.path("ready").asBoolean() ? node : null;
    } catch (IOException e) {
      return null;
    }
  }

  private void checkVersion(JsonNode hello) {
    String version = hello.path("version").asText();
    int protocol = hello.path("protocol").asInt();
    if (!version.equals(Version.RELEASE) || protocol != Version.PROTOCOL) {
      throw new DSparkJsonException(
          DSparkJsonException.WORKER_VERSION,
          "the jar is dspark-json " + Version.RELEASE + " (protocol " + Version.PROTOCOL + "), the Python package of "
              + command.found() + " is " + version + " (protocol " + protocol + ")",
          "Use the jar inside that package (dspark_json.configure_spark(builder) does), or install dspark-json=="
              + Version.RELEASE + " for that Python.",
          null);
    }
  }

  private static DSparkJsonException startError(PythonCommand command, String what, String output, Throwable cause) {
    String said = output.isEmpty() ? "" : "; it said: " + output;
    String line = String.join(" ", command.workerAt("<socket>"));
    String remedy =
        output.contains("No module named")
            ? "Install dspark-json==" + Version.RELEASE + " for that Python, or name another one as "
                + "spark.dspark.python or option workerPython."
            : "Name a Python that has dspark-json==" + Version.RELEASE + " as spark.dspark.python or option "
                + "workerPython; on a cluster it must be there on every machine.";
    return new DSparkJsonException(
        DSparkJsonException.WORKER_START, "the Python worker (" + line + ") " + what + said, remedy, cause);
  }

  /** Whether the process runs. Only this counts: an interrupted connection says nothing about it. */
  boolean isAlive() {
    return process.isAlive();
  }

  /** Where it listens. */
  Path socket() {
    return socket;
  }

  /** A connection that nobody else uses. */
  WorkerConnection take() throws IOException {
    WorkerConnection connection = idle.poll();
    return connection != null ? connection : WorkerConnection.open(socket, token, this::lost);
  }

  /** Takes a connection back on which nothing is under way. */
  void giveBack(WorkerConnection connection) {
    if (process.isAlive() && idle.size() < IDLE_CONNECTIONS) {
      idle.add(connection);
    } else {
      connection.close();
    }
  }

  private WorkerLostException lost(String what, Throwable cause) {
    String output = log.tail();
    return new WorkerLostException(
        "the Python worker (process " + process.pid() + " of " + command.found() + ") " + what + exitCode()
            + (output.isEmpty() ? "" : "; it said last: " + output),
        cause);
  }

  /** Whether a signal ended it: that says nothing about the next one. */
  private boolean wasKilled() {
    return !process.isAlive() && process.exitValue() > SIGNALS;
  }

  private String exitCode() {
    try {
      if (process.waitFor(EXIT_MILLISECONDS, TimeUnit.MILLISECONDS)) {
        return ", exit code " + process.exitValue();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    return "";
  }

  /** Ends the process and all connections to it. */
  void destroy() {
    process.destroyForcibly();
    for (WorkerConnection connection = idle.poll(); connection != null; connection = idle.poll()) {
      connection.close();
    }
  }

  private void removeSocket() {
    try {
      Files.deleteIfExists(socket);
      Files.deleteIfExists(socket.getParent());
    } catch (IOException e) {
      log.add("WARNING dspark_json can't remove " + socket.getParent() + ": " + e);
    }
  }

  @Override
  public String toString() {
    return "Worker(process " + process.pid() + " of " + command.found() + ")";
  }
}
