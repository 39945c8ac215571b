package io.dspark.json;

import java.util.Map;
import org.apache.spark.SparkThrowable;

/**
 * An error with a code of {@code docs/errors.md}; its text is the one that the Python package gives.
 *
 * <p>Options that can't be taken are an {@code IllegalArgumentException} instead, with the same text.
 */
public final class DSparkJsonException extends RuntimeException implements SparkThrowable {
  static final String INTERNAL = "DSPARK_JSON_INTERNAL";
  static final String SOURCE_ONLY = "DSPARK_JSON_SOURCE_ONLY";
  static final String WORKER_DIED = "DSPARK_JSON_WORKER_DIED";
  static final String WORKER_START = "DSPARK_JSON_WORKER_START";
  static final String WORKER_VERSION = "DSPARK_JSON_WORKER_VERSION";

  private static final long serialVersionUID = 1L;
  /** SQL states: an error of the system outside of SQL, and an error in data. */
  private static final String SYSTEM_ERROR = "58000";

  private static final String DATA_ERROR = "22000";

  private final String code;

  /** An error whose text is made already. */
  DSparkJsonException(String code, String text, Throwable cause) {
    super(text, cause);
    this.code = code;
  }

  DSparkJsonException(String code, String message, String remedy, Throwable cause) {
    this(code, text(code, message, remedy), cause);
  }

  /** Somebody writes to the source; the Python source says the same. */
  static DSparkJsonException sourceOnly() {
    return new DSparkJsonException(
        SOURCE_ONLY,
        "dspark-json is a source: nothing can be written with it",
        "Write to a table, such as format(\"delta\"). Answers come into a spool by the server's hook, or from files by "
            + "`dspark-json import`.",
        null);
  }

  /** {@code CODE: what happened. What to do.} */
  private static String text(String code, String message, String remedy) {
    String text = code + ": " + message;
    if (remedy.isEmpty()) {
      return text;
    }
    int end = text.length();
    while (end > 0 && text.charAt(end - 1) == '.') {
      end--;
    }
    return text.substring(0, end) + ". " + remedy;
  }

  @Override
  public String getCondition() {
    return code;
  }

  @Override
  public String getSqlState() {
    return code.equals(INTERNAL) || code.startsWith("DSPARK_JSON_WORKER") ? SYSTEM_ERROR : DATA_ERROR;
  }

  @Override
  public Map<String, String> getMessageParameters() {
    return Map.of();
  }
}
