package io.dspark.json;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

/** What the worker writes: passed on to the log line by line, at the level it gives, and the end of it kept. */
final class WorkerLog {
  private static final Pattern LINE = Pattern.compile("(DEBUG|INFO|WARNING|ERROR|CRITICAL) (dspark_json[\\w.]*) (.*)");
  private static final String LOGGER = "dspark_json";
  private static final int KEPT_LINES = 20;
  private static final int KEPT_CHARACTERS = 500;

  private final Deque<String> last = new ArrayDeque<>();
  private Logger logger = LoggerFactory.getLogger(LOGGER);
  private Level level = Level.WARN;

  /** Follows a stream until its end, in a thread of its own. */
  Thread follow(InputStream stream) {
    Thread thread = new Thread(() -> copy(stream), "dspark-json-worker-log");
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  private void copy(InputStream stream) {
    try (BufferedReader lines = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))) {
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        add(line);
      }
    } catch (IOException e) {
      // The process is gone, and its output with it.
    }
  }

  /** Takes a line. One that has no level of its own (of a traceback, say) belongs to the one before. */
  synchronized void add(String line) {
    Matcher parts = LINE.matcher(line);
    String text = line;
    if (parts.matches()) {
      level = level(parts.group(1));
      logger = LoggerFactory.getLogger(parts.group(2));
      text = parts.group(3);
    }
    logger.atLevel(level).log(text);
    if (last.size() == KEPT_LINES) {
      last.removeFirst();
    }
    last.addLast(line.length() > KEPT_CHARACTERS ? line.substring(0, KEPT_CHARACTERS) + "…" : line);
  }

  /** What the worker's log is wanted for, by its names of levels: it need not write more. */
  static String level() {
    Logger logger = LoggerFactory.getLogger(LOGGER);
    if (logger.isDebugEnabled()) {
      return "DEBUG";
    }
    if (logger.isInfoEnabled()) {
      return "INFO";
    }
    return logger.isWarnEnabled() ? "WARNING" : "ERROR";
  }

  private static Level level(String name) {
    return switch (name) {
      case "DEBUG" -> Level.DEBUG;
      case "INFO" -> Level.INFO;
      case "WARNING" -> Level.WARN;
      default -> Level.ERROR;
    };
  }

  /** The last lines, joined; empty where there are none. */
  synchronized String tail() {
    return String.join("\n", last);
  }
}
