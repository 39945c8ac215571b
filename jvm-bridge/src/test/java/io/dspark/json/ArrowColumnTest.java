package io.dspark.json;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.junit.jupiter.api.Test;

class ArrowColumnTest {
  @Test
  void everyPlainTypeReadsBackWithAndWithoutNulls() throws IOException {
    StructType schema = new StructType();
    for (DataType type : Values.plainTypes()) {
      schema = schema.add("c" + schema.length(), type);
    }
    for (double nulls : new double[] {0, 0.3, 1}) {
      assertReadsBack(schema, List.of(new Values(new Random(1), nulls).rows(schema, 100)));
    }
  }

  @Test
  void structsListsAndMapsReadBackHoweverTheyAreNested() throws IOException {
    for (int seed = 0; seed < 150; seed++) {
      Values values = new Values(new Random(seed), seed % 3 * 0.25);
      StructType schema = values.schema(4);
      List<List<InternalRow>> batches =
          List.of(values.rows(schema, 20), values.rows(schema, 0), values.rows(schema, 1), values.rows(schema, 33));
      assertReadsBack(schema, batches);
    }
  }

  private static void assertReadsBack(StructType schema, List<List<InternalRow>> batches) throws IOException {
    byte[] bytes = ArrowBytes.of(schema, batches);
    ArrowColumn[] columns = ArrowColumn.of(schema);
    try (BufferAllocator allocator = new RootAllocator();
        ArrowStream stream = new ArrowStream(ArrowBytes.channel(bytes), allocator)) {
      ArrowSchemas.check(stream.readSchema(), schema);
      UnsafeProjection toRow = UnsafeProjection.create(schema);
      for (List<InternalRow> expected : batches) {
        ColumnarBatch batch = bound(stream.nextBatch(), columns);
        assertEquals(expected.size(), batch.numRows());
        for (int i = 0; i < expected.size(); i++) {
          List<Object> wanted = Values.plain(expected.get(i), schema);
          assertEquals(wanted, Values.plain(batch.getRow(i), schema), schema.catalogString());
          UnsafeRow copied = toRow.apply(batch.getRow(i));
          assertEquals(wanted, Values.plain(copied, schema), "as Spark copies it: " + schema.catalogString());
        }
        for (ArrowColumn column : columns) {
          assertEquals(column.numNulls() > 0, column.hasNull());
        }
      }
      assertNull(stream.nextBatch());
    }
  }

  private static ColumnarBatch bound(ArrowBatch next, ArrowColumn[] columns) {
    next.bind(columns);
    return new ColumnarBatch(columns, next.rows());
  }

  @Test
  void theValuesOfASlicedArrayAreFound() throws IOException {
    // Three of the strings of a larger array: its offsets begin in the middle, its nulls are counted anew.
    StructType schema = new StructType().add("text", DataTypes.StringType);
    byte[] text = "before|one|three|after".getBytes(StandardCharsets.UTF_8);
    ColumnarBatch batch = read(schema, 3, nodes(3, 1), new byte[] {0b101}, ints(7, 10, 10, 16), text);
    assertEquals("one", batch.column(0).getUTF8String(0).toString());
    assertTrue(batch.column(0).isNullAt(1));
    assertNull(batch.column(0).getUTF8String(1));
    assertEquals("|three", batch.column(0).getUTF8String(2).toString());
  }

  @Test
  void anAbsentValidityBufferMeansThatAllAreThere() throws IOException {
    StructType schema = new StructType().add("n", DataTypes.IntegerType);
    ColumnarBatch batch = read(schema, 2, nodes(2, 0), new byte[0], ints(7, 8));
    assertFalse(batch.column(0).hasNull());
    assertFalse(batch.column(0).isNullAt(1));
    assertEquals(8, batch.column(0).getInt(1));
  }

  @Test
  void anEmptyArrayNeedsNoOffsets() throws IOException {
    StructType schema =
        new StructType().add("list", DataTypes.createArrayType(DataTypes.StringType));
    ColumnarBatch batch =
        read(schema, 0, nodes(0, 0, 0, 0), new byte[0], new byte[0], new byte[0], new byte[0], new byte[0]);
    assertEquals(0, batch.numRows());
  }

  @Test
  void aBatchWithoutColumnsKeepsItsRows() throws IOException {
    assertEquals(12, read(new StructType(), 12, List.of()).numRows());
  }

  @Test
  void buffersThatAreTooSmallForTheirRowsAreRefused() {
    StructType number = new StructType().add("n", DataTypes.LongType);
    assertRefused(number, 9, nodes(9, 0), new byte[0], new byte[64]);
    assertRefused(number, 9, nodes(9, 1), new byte[1], new byte[72]);
    assertRefused(number, 9, nodes(8, 0), new byte[0], new byte[72]);
    assertRefused(number, 1, nodes(1, 0), new byte[0]);
    assertRefused(number, 1, nodes(1, 0, 1, 0), new byte[0], new byte[8], new byte[0], new byte[8]);
    StructType text = new StructType().add("text", DataTypes.StringType);
    assertRefused(text, 2, nodes(2, 0), new byte[0], ints(0, 3), new byte[8]);
    assertRefused(text, 1, nodes(1, 0), new byte[0], ints(0, 30), new byte[8]);
    assertRefused(text, 1, nodes(1, 0), new byte[0], ints(-1, 3), new byte[8]);
    assertRefused(text, 1, nodes(1, 0), new byte[0], ints(3, 1), new byte[8]);
    StructType list = new StructType().add("list", DataTypes.createArrayType(DataTypes.IntegerType));
    assertRefused(list, 1, nodes(1, 0, 1, 0), new byte[0], ints(0, 2), new byte[0], ints(1));
  }

  private static void assertRefused(StructType schema, int rows, List<ArrowFieldNode> nodes, byte[]... buffers) {
    assertThrows(IllegalArgumentException.class, () -> read(schema, rows, nodes, buffers));
  }

  @Test
  void typesThatRowsNeverHaveAreRefused() {
    StructType schema = new StructType().add("v", DataTypes.CalendarIntervalType);
    assertThrows(IllegalArgumentException.class, () -> ArrowColumn.of(schema));
  }

  private static List<ArrowFieldNode> nodes(int... lengthsAndNulls) {
    List<ArrowFieldNode> nodes = new ArrayList<>();
    for (int i = 0; i < lengthsAndNulls.length; i += 2) {
      nodes.add(new ArrowFieldNode(lengthsAndNulls[i], lengthsAndNulls[i + 1]));
    }
    return nodes;
  }

  private static byte[] ints(int... values) {
    ByteBuffer bytes = ByteBuffer.allocate(values.length * Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    for (int value : values) {
      bytes.putInt(value);
    }
    return bytes.array();
  }

  /** Reads a batch that is laid out by hand; what it holds stays readable, since nothing is freed. */
  private static ColumnarBatch read(StructType schema, int rows, List<ArrowFieldNode> nodes, byte[]... buffers)
      throws IOException {
    BufferAllocator allocator = new RootAllocator();
    List<ArrowBuf> laid = new ArrayList<>();
    for (byte[] bytes : buffers) {
      ArrowBuf buffer = allocator.buffer(Math.max(1, bytes.length));
      buffer.writeBytes(bytes);
      laid.add(buffer);
    }
    ByteArrayOutputStream message = new ByteArrayOutputStream();
    WriteChannel channel = new WriteChannel(Channels.newChannel(message));
    MessageSerializer.serialize(channel, new ArrowRecordBatch(rows, nodes, laid));
    ArrowStream stream = new ArrowStream(ArrowBytes.channel(message.toByteArray()), allocator);
    return bound(stream.nextBatch(), ArrowColumn.of(schema));
  }
}
