package io.dspark.json;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.channels.ReadableByteChannel;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.StructType;

/** Arrow streams as Spark's own writer and Arrow's own serializer make them. */
final class ArrowBytes {
  private ArrowBytes() {}

  /** A stream of batches, with its end mark. */
  static byte[] of(StructType schema, List<List<InternalRow>> batches) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (BufferAllocator allocator = new RootAllocator();
        VectorSchemaRoot root = VectorSchemaRoot.create(ArrowSchemas.toArrow(schema), allocator);
        ArrowStreamWriter stream = new ArrowStreamWriter(root, null, bytes)) {
      ArrowWriter writer = ArrowWriter.create(root);
      for (List<InternalRow> rows : batches) {
        writer.reset();
        rows.forEach(writer::write);
        writer.finish();
        root.setRowCount(rows.size());
        stream.writeBatch();
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  static ReadableByteChannel channel(byte[] bytes) {
    return Channels.newChannel(new ByteArrayInputStream(bytes));
  }
}
