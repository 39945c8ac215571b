package io.dspark.json;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/**
 * A connection to the worker: frames of JSON, each after its length as a 32-bit big-endian number, and Arrow streams
 * between them. One thread at a time uses it.
 *
 * <p>Where the other side is gone it throws {@code WorkerLostException}; where a thread is interrupted, {@code
 * ClosedByInterruptException}, which is how Spark ends tasks and queries.
 */
final class WorkerConnection implements ReadableByteChannel {
  static final int MOST_BYTES = 64 << 20;

  private static final ObjectMapper JSON =
      new ObjectMapper(
          JsonFactory.builder()
              .streamReadConstraints(StreamReadConstraints.builder().maxStringLength(MOST_BYTES).build())
              .build());

  private final SocketChannel channel;
  private final LostHandler lost;
  private long bytesRead;

  /** Says what became of the worker, when its connection ends. */
  interface LostHandler {
    WorkerLostException lost(String what, Throwable cause);
  }

  private WorkerConnection(SocketChannel channel, LostHandler lost) {
    this.channel = channel;
    this.lost = lost;
  }

  /** Connects and shows the token. */
  static WorkerConnection open(Path socket, String token, LostHandler lost) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    WorkerConnection connection = new WorkerConnection(channel, lost);
    try {
      connection.connect(socket);
      ObjectNode hello = request("hello");
      hello.put("token", token).put("protocol", Version.PROTOCOL).put("version", Version.RELEASE);
      WorkerAnswer.checked(connection.ask(hello));
      return connection;
    } catch (IOException | RuntimeException e) {
      connection.close();
      throw e;
    }
  }

  private void connect(Path socket) throws IOException {
    try {
      channel.connect(UnixDomainSocketAddress.of(socket));
    } catch (ClosedByInterruptException e) {
      throw e;
    } catch (IOException e) {
      throw lost.lost("can't be connected to", e);
    }
  }

  /** A request to be filled in. */
  static ObjectNode request(String operation) {
    return JSON.createObjectNode().put("op", operation);
  }

  /** An object of strings. */
  static ObjectNode object(Iterable<java.util.Map.Entry<String, String>> entries) {
    ObjectNode object = JSON.createObjectNode();
    entries.forEach(entry -> object.put(entry.getKey(), entry.getValue()));
    return object;
  }

  /** Parses one line or frame. */
  static JsonNode parse(byte[] text) throws IOException {
    return JSON.readTree(text);
  }

  /** Sends a request and waits for its answer, whatever that says. */
  ObjectNode ask(ObjectNode request) throws IOException {
    send(request);
    return receive();
  }

  private void send(ObjectNode request) throws IOException {
    byte[] text = JSON.writeValueAsBytes(request);
    if (text.length > MOST_BYTES) {
      throw new IllegalArgumentException("a request of " + text.length + " bytes, " + MOST_BYTES + " is the most");
    }
    ByteBuffer frame = ByteBuffer.allocate(Integer.BYTES + text.length).putInt(text.length).put(text).flip();
    try {
      while (frame.hasRemaining()) {
        channel.write(frame);
      }
    } catch (ClosedByInterruptException e) {
      throw e;
    } catch (IOException e) {
      throw lost.lost("takes no more requests", e);
    }
  }

  /** The next frame. */
  ObjectNode receive() throws IOException {
    int length = full(Integer.BYTES).getInt();
    if (length < 0 || length > MOST_BYTES) {
      throw broken("a frame of " + Integer.toUnsignedString(length) + " bytes", null);
    }
    byte[] text = full(length).array();
    JsonNode node;
    try {
      node = JSON.readTree(text);
    } catch (JsonProcessingException e) {
      e.clearLocation();
      throw broken("a frame that is not JSON", e);
    }
    if (node instanceof ObjectNode object) {
      return object;
    }
    throw broken("a frame that is no JSON object", null);
  }

  private ByteBuffer full(int length) throws IOException {
    ByteBuffer buffer = ByteBuffer.allocate(length);
    while (buffer.hasRemaining()) {
      read(buffer);
    }
    return buffer.flip();
  }

  /** The error for bytes that the worker should not have sent. */
  static DSparkJsonException broken(String what, Throwable cause) {
    return new DSparkJsonException(
        DSparkJsonException.INTERNAL, "the Python worker sent " + what, "Please report this.", cause);
  }

  /** Reads at least a byte; never returns -1. */
  @Override
  public int read(ByteBuffer into) throws IOException {
    int count;
    try {
      count = channel.read(into);
    } catch (ClosedByInterruptException e) {
      throw e;
    } catch (IOException e) {
      throw lost.lost("sends no more", e);
    }
    if (count < 0) {
      throw lost.lost("closed its connection", null);
    }
    bytesRead += count;
    return count;
  }

  /** How many bytes have come in so far. */
  long bytesRead() {
    return bytesRead;
  }

  @Override
  public boolean isOpen() {
    return channel.isOpen();
  }

  @Override
  public void close() {
    try {
      channel.close();
    } catch (IOException e) {
      // Nothing is lost with it: what has not come by now is asked for again.
    }
  }
}
