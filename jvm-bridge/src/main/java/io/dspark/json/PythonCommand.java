package io.dspark.json;

import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The Python that runs the worker.
 *
 * <p>Which one, in this order: option {@code workerPython}, configuration {@code spark.dspark.python}, configuration
 * {@code spark.pyspark.python}, variable {@code PYSPARK_PYTHON}, on an executor what the driver found, {@code python3}.
 * Where {@code PYSPARK_PYTHON} is a path that only executors have (of an environment that is sent with the job), the
 * driver takes {@code spark.pyspark.driver.python} or {@code PYSPARK_DRIVER_PYTHON}, as Spark does.
 *
 * @param chosen what the user named for this source; null where nothing was
 * @param found what runs here
 * @param path what goes in front of {@code PYTHONPATH}; empty for nothing
 */
record PythonCommand(String chosen, String found, String path) implements Serializable {
  private static final String OPTION = "workerPython";
  private static final String CONF = "spark.dspark.python";
  private static final String PATH_CONF = "spark.dspark.pythonpath";
  private static final String PYSPARK_CONF = "spark.pyspark.python";
  private static final String PYSPARK_VARIABLE = "PYSPARK_PYTHON";
  private static final String DRIVER_CONF = "spark.pyspark.driver.python";
  private static final String DRIVER_VARIABLE = "PYSPARK_DRIVER_PYTHON";
  private static final String DEFAULT = "python3";
  /** What Spark calls the driver among its executors. */
  private static final String DRIVER = "driver";

  /** On the driver: from the options and the session. */
  static PythonCommand onDriver(Map<String, String> options) {
    SQLConf conf = SQLConf.get();
    String chosen =
        options.entrySet().stream()
            .filter(option -> option.getKey().equalsIgnoreCase(OPTION))
            .map(Map.Entry::getValue)
            .findFirst()
            .orElseGet(() -> conf.getConfString(CONF, null));
    String fromConf = conf.getConfString(PYSPARK_CONF, null);
    return new PythonCommand(chosen, first(chosen, fromConf, DEFAULT), conf.getConfString(PATH_CONF, ""));
  }

  /** In a task: the driver's, unless this executor has its own. */
  PythonCommand onExecutor() {
    SparkEnv env = SparkEnv.get();
    SparkConf conf = env == null ? null : env.conf();
    String fromConf = conf == null ? null : conf.get(PYSPARK_CONF, null);
    return new PythonCommand(chosen, first(chosen, fromConf, found), path);
  }

  private static String first(String chosen, String fromConf, String otherwise) {
    return firstGiven(chosen, fromConf, System.getenv(PYSPARK_VARIABLE)).orElse(otherwise);
  }

  private static Optional<String> firstGiven(String... pythons) {
    return Stream.of(pythons).filter(python -> python != null && !python.isBlank()).findFirst();
  }

  /** What runs here: {@code found}, or on a driver that does not have it, the driver's own. */
  private String here() {
    SparkEnv env = SparkEnv.get();
    boolean onDriver = env != null && env.executorId().equals(DRIVER);
    if (chosen != null || !onDriver || !found.contains("/") || Files.isExecutable(Path.of(found))) {
      return found;
    }
    return firstGiven(env.conf().get(DRIVER_CONF, null), System.getenv(DRIVER_VARIABLE)).orElse(found);
  }

  /** The command line of a worker that listens there. */
  List<String> workerAt(String socket) {
    return List.of(here(), "-m", "dspark_json.source.worker", socket, "--log", WorkerLog.level());
  }
}
