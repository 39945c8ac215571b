package io.dspark.json;

import java.io.IOException;

/** The worker ended, or its connection did: what was asked can be asked again of a new one. */
final class WorkerLostException extends IOException {
  private static final long serialVersionUID = 1L;

  WorkerLostException(String message, Throwable cause) {
    super(message, cause);
  }

  /** The error for the user, once asking again did not help. */
  DSparkJsonException asError() {
    return new DSparkJsonException(
        DSparkJsonException.WORKER_DIED,
        getMessage(),
        "Was it killed, or out of memory? The log of the driver or executor has all of its output.",
        this);
  }
}
