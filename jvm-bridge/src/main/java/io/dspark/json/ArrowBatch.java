package io.dspark.json;

import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.RecordBatch;

/**
 * A batch of rows as it lies in memory: where Arrow's buffers are, not what is in them.
 *
 * <p>It is good until its source is asked for the next one.
 */
public final class ArrowBatch {
  private final RecordBatch layout;
  private final long body;
  private final long bodyLength;

  /**
   * A batch.
   *
   * @param layout number of rows, and for each column, parents first, its length, nulls and buffers
   * @param body address of the memory that the buffers lie in
   */
  ArrowBatch(RecordBatch layout, long body, long bodyLength) {
    this.layout = layout;
    this.body = body;
    this.bodyLength = bodyLength;
  }

  /** How many rows; also where there are no columns. */
  int rows() {
    long rows = layout.length();
    if (rows < 0 || rows > Integer.MAX_VALUE) {
      throw new IllegalArgumentException("a batch of " + rows + " rows");
    }
    return (int) rows;
  }

  /**
   * Points the columns at this batch.
   *
   * @throws IllegalArgumentException where it does not have what the columns need
   */
  void bind(ArrowColumn[] columns) {
    int rows = rows();
    Buffers buffers = new Buffers();
    for (ArrowColumn column : columns) {
      column.bind(buffers, rows);
    }
    buffers.checkDone();
  }

  /** The lengths and buffers, handed out in the order in which they lie. */
  final class Buffers {
    private final FieldNode node = new FieldNode();
    private final Buffer buffer = new Buffer();
    private int nodesTaken;
    private int buffersTaken;

    private Buffers() {}

    /** Goes to the next column and returns its length. */
    long nextNode() {
      if (nodesTaken == layout.nodesLength()) {
        throw new IllegalArgumentException("a batch has " + nodesTaken + " columns and too few for its rows");
      }
      layout.nodes(node, nodesTaken++);
      return node.length();
    }

    /** How many values of the present column are null. */
    int nulls() {
      return Math.toIntExact(node.nullCount());
    }

    /** The address of the next buffer, which must have so many bytes at least. */
    long nextBuffer(long bytes) {
      if (buffersTaken == layout.buffersLength()) {
        throw new IllegalArgumentException("a batch has " + buffersTaken + " buffers and too few for its columns");
      }
      layout.buffers(buffer, buffersTaken++);
      long offset = buffer.offset();
      long length = buffer.length();
      if (offset < 0 || length < bytes || length > bodyLength - offset) {
        throw new IllegalArgumentException(
            "buffer " + (buffersTaken - 1) + " lies at " + offset + " with " + length + " bytes of " + bodyLength + ", "
                + bytes + " are needed");
      }
      return body + offset;
    }

    private void checkDone() {
      if (nodesTaken != layout.nodesLength() || buffersTaken != layout.buffersLength()) {
        throw new IllegalArgumentException(
            "a batch has " + layout.nodesLength() + " columns in " + layout.buffersLength() + " buffers, " + nodesTaken
                + " in " + buffersTaken + " are expected");
      }
    }
  }
}
