package io.dspark.json;

import com.fasterxml.jackson.databind.node.ObjectNode;

/** Turns the worker's answers into values or exceptions. */
final class WorkerAnswer {
  private WorkerAnswer() {}

  /**
   * The answer itself.
   *
   * @throws IllegalArgumentException where the worker says that options can't be taken as given
   * @throws DSparkJsonException where it says that something else is wrong
   */
  static ObjectNode checked(ObjectNode answer) {
    if (answer.path("ok").asBoolean()) {
      return answer;
    }
    String code = answer.path("code").asText(DSparkJsonException.INTERNAL);
    String text = answer.path("text").asText();
    if (answer.path("kind").asText().equals("option")) {
      throw new IllegalArgumentException(text);
    }
    Throwable cause = answer.hasNonNull("traceback") ? new PythonTraceback(answer.get("traceback").asText()) : null;
    throw new DSparkJsonException(code, text, cause);
  }

  /** Whether the worker does not know the stream that was asked for: it is a new one. */
  static boolean isUnknownStream(ObjectNode answer) {
    return answer.path("code").asText().equals("DSPARK_JSON_STREAM_UNKNOWN");
  }

  /** Where in Python an error came from. */
  private static final class PythonTraceback extends Exception {
    private static final long serialVersionUID = 1L;

    PythonTraceback(String text) {
      super("in the Python worker:\n" + text, null, false, false);
    }
  }
}
