package io.dspark.json;

import java.io.Closeable;
import java.io.IOException;

/** Where a reader gets its batches from. Whoever implements it owns the memory that they lie in. */
public interface BatchSource extends Closeable {
  /**
   * The next batch, in exactly the columns that were asked for; null at the end, when all of them were there.
   *
   * <p>It ends the life of the one before.
   */
  ArrowBatch next() throws IOException;

  /** Gives all memory back; may be called at any time, and more than once. */
  @Override
  void close() throws IOException;
}
