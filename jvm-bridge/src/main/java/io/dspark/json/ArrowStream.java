package io.dspark.json;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ReadableByteChannel;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Reads an Arrow IPC stream: a schema, batches, an end mark.
 *
 * <p>Arrow's own reader makes a vector for each column and a buffer for each part of it, again with each batch. This
 * one reads the body into one buffer that it uses again, and leaves it at that; {@link ArrowColumn} needs only
 * addresses. See <a href="https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format">the format</a>.
 *
 * <p>What can't be right is an {@code IllegalArgumentException} (or what flatbuffers throws), an early end of the
 * channel an {@code EOFException}. The end mark alone does not say that the stream was whole: a sender that fails
 * writes it too.
 */
final class ArrowStream implements Closeable {
  private static final int CONTINUATION = 0xFFFFFFFF;
  private static final int PREFIX_BYTES = 8;
  private static final int MOST_METADATA = 64 << 20;
  private static final long MOST_BODY = 16L << 30;
  /** The most that one view of the body spans: those count in ints. */
  private static final int VIEW_BYTES = 1 << 30;

  private final ReadableByteChannel channel;
  private final BufferAllocator allocator;
  private final ByteBuffer prefix = ByteBuffer.allocateDirect(PREFIX_BYTES).order(ByteOrder.LITTLE_ENDIAN);
  private byte[] metadata = new byte[4096];
  private ArrowBuf body;

  ArrowStream(ReadableByteChannel channel, BufferAllocator allocator) {
    this.channel = channel;
    this.allocator = allocator;
  }

  /** The schema, with which the stream begins. */
  Schema readSchema() throws IOException {
    Message message = nextMessage();
    if (message == null || message.headerType() != MessageHeader.Schema) {
      throw new IllegalArgumentException("an Arrow stream does not begin with a schema");
    }
    org.apache.arrow.flatbuf.Schema schema = new org.apache.arrow.flatbuf.Schema();
    message.header(schema);
    return Schema.convertSchema(schema);
  }

  /** The next batch, in memory that the one before lay in; null at the end mark. */
  ArrowBatch nextBatch() throws IOException {
    Message message = nextMessage();
    if (message == null) {
      return null;
    }
    if (message.headerType() != MessageHeader.RecordBatch) {
      throw new IllegalArgumentException("message of type " + message.headerType() + " where a batch is expected");
    }
    RecordBatch batch = new RecordBatch();
    message.header(batch);
    if (batch.compression() != null) {
      throw new IllegalArgumentException("a batch is compressed");
    }
    long length = message.bodyLength();
    if (length < 0 || length > MOST_BODY) {
      throw new IllegalArgumentException("a batch of " + length + " bytes");
    }
    readBody(length);
    return new ArrowBatch(batch, body == null ? 0 : body.memoryAddress(), length);
  }

  /** The metadata of the next message; null at the end mark. */
  private Message nextMessage() throws IOException {
    fill(prefix.clear());
    if (prefix.getInt(0) != CONTINUATION) {
      throw new IllegalArgumentException("bytes that are no Arrow message");
    }
    int length = prefix.getInt(4);
    if (length == 0) {
      return null;
    }
    if (length < 0 || length > MOST_METADATA) {
      throw new IllegalArgumentException("an Arrow message with " + length + " bytes of metadata");
    }
    if (length > metadata.length) {
      metadata = new byte[Math.max(length, 2 * metadata.length)];
    }
    ByteBuffer buffer = ByteBuffer.wrap(metadata, 0, length);
    fill(buffer);
    return Message.getRootAsMessage(buffer.rewind());
  }

  private void readBody(long length) throws IOException {
    if (body == null ? length > 0 : length > body.capacity()) {
      close();
      body = allocator.buffer(length);
    }
    for (long at = 0; at < length; at += VIEW_BYTES) {
      fill(body.nioBuffer(at, (int) Math.min(VIEW_BYTES, length - at)));
    }
  }

  private void fill(ByteBuffer buffer) throws IOException {
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        throw new EOFException("an Arrow stream ends in the middle");
      }
    }
  }

  /** Gives the memory of the last batch back; the channel stays open. */
  @Override
  public void close() {
    if (body != null) {
      body.close();
      body = null;
    }
  }
}
