package io.dspark.json;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;

/** What both sides say of themselves when they meet. */
final class Version {
  /** Of the protocol between the connector and its worker. */
  static final int PROTOCOL = 1;

  /** Of this jar, and of the Python package that it belongs to. */
  static final String RELEASE = release();

  private Version() {}

  private static String release() {
    Properties properties = new Properties();
    try (InputStream in = Version.class.getResourceAsStream("version.properties")) {
      properties.load(in);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return properties.getProperty("version");
  }
}
