package io.dspark.json;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.EOFException;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.junit.jupiter.api.Test;

class ArrowStreamTest {
  private static final StructType SCHEMA =
      new StructType().add("text", DataTypes.StringType).add("n", DataTypes.LongType);

  private static List<InternalRow> rows(int count) {
    return new Values(new Random(count), 0.1).rows(SCHEMA, count);
  }

  @Test
  void allMemoryIsBackOnceItIsClosed() throws IOException {
    byte[] bytes = ArrowBytes.of(SCHEMA, List.of(rows(10), rows(5000), rows(20)));
    try (BufferAllocator allocator = new RootAllocator()) {
      ArrowStream stream = new ArrowStream(ArrowBytes.channel(bytes), allocator);
      stream.readSchema();
      assertEquals(0, allocator.getAllocatedMemory());
      stream.nextBatch();
      stream.nextBatch();
      long most = allocator.getAllocatedMemory();
      assertTrue(most > 0);
      stream.nextBatch();
      assertEquals(most, allocator.getAllocatedMemory(), "the same memory again");
      stream.close(); // before its end
      assertEquals(0, allocator.getAllocatedMemory());
      stream.close();
    }
  }

  @Test
  void closingABatchAsSparkDoesLeavesItsColumnsAlone() throws IOException {
    byte[] bytes = ArrowBytes.of(SCHEMA, List.of(rows(10), rows(10)));
    try (BufferAllocator allocator = new RootAllocator();
        ArrowStream stream = new ArrowStream(ArrowBytes.channel(bytes), allocator)) {
      stream.readSchema();
      ArrowColumn[] columns = ArrowColumn.of(SCHEMA);
      ColumnarBatch batch = new ColumnarBatch(columns);
      for (int k = 0; k < 2; k++) {
        stream.nextBatch().bind(columns);
        batch.setNumRows(10);
        List<Object> first = Values.plain(batch.getRow(0), SCHEMA);
        batch.closeIfFreeable();
        batch.close();
        assertEquals(first, Values.plain(batch.getRow(0), SCHEMA));
      }
    }
  }

  @Test
  void aStreamThatEndsAnywhereBeforeItsEndMarkIsCut() throws IOException {
    byte[] whole = ArrowBytes.of(SCHEMA, List.of(rows(3), rows(2)));
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      try (BufferAllocator allocator = new RootAllocator()) {
        assertThrows(EOFException.class, () -> readAll(cut, allocator));
        assertEquals(0, allocator.getAllocatedMemory());
      }
    }
  }

  @Test
  void damagedStreamsGiveErrorsAndNeverLeak() throws IOException {
    byte[] whole = ArrowBytes.of(SCHEMA, List.of(rows(3), rows(2)));
    Random random = new Random(7);
    int refused = 0;
    for (int k = 0; k < 3000; k++) {
      byte[] damaged = whole.clone();
      damaged[random.nextInt(damaged.length)] ^= (byte) (1 << random.nextInt(8));
      try (BufferAllocator allocator = new RootAllocator(64 << 20)) {
        try {
          readAll(damaged, allocator);
        } catch (IOException | RuntimeException | AssertionError e) {
          refused++; // what flatbuffers and the allocator throw for damage is their own affair
        }
        assertEquals(0, allocator.getAllocatedMemory());
      }
    }
    assertTrue(refused > 500, refused + " of 3000 were noticed");
  }

  private static void readAll(byte[] bytes, BufferAllocator allocator) throws IOException {
    try (ArrowStream stream = new ArrowStream(ArrowBytes.channel(bytes), allocator)) {
      ArrowSchemas.check(stream.readSchema(), SCHEMA);
      ArrowColumn[] columns = ArrowColumn.of(SCHEMA);
      for (ArrowBatch batch = stream.nextBatch(); batch != null; batch = stream.nextBatch()) {
        batch.bind(columns);
      }
    }
  }

  @Test
  void bytesThatAreNoArrowAreRefused() {
    try (BufferAllocator allocator = new RootAllocator()) {
      for (byte[] garbage :
          List.of(
              "HTTP/1.1 200 OK\r\n\r\n".getBytes(),
              new byte[64],
              new byte[] {-1, -1, -1, -1, 0, 0, 0, 0},
              new byte[] {-1, -1, -1, -1, -1, -1, -1, 127, 0, 0},
              new byte[] {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0})) {
        ArrowStream stream = new ArrowStream(ArrowBytes.channel(garbage), allocator);
        assertThrows(IllegalArgumentException.class, stream::readSchema);
      }
    }
  }

  @Test
  void layoutsThatSparkWouldMisreadAreRefused() {
    FieldType plain = FieldType.nullable(new ArrowType.Utf8());
    Field dictionary =
        new Field("c", new FieldType(true, new ArrowType.Int(32, true), new DictionaryEncoding(1, false, null)), null);
    Field large = new Field("c", FieldType.nullable(new ArrowType.LargeUtf8()), null);
    Field decimal = new Field("c", FieldType.nullable(new ArrowType.Decimal(38, 2, 256)), null);
    StructType text = new StructType().add("c", DataTypes.StringType);
    ArrowSchemas.check(new Schema(List.of(new Field("c", plain, null))), text);
    StructType number = new StructType().add("c", DataTypes.IntegerType);
    StructType exact = new StructType().add("c", DataTypes.createDecimalType(38, 2));
    assertThrows(IllegalArgumentException.class, () -> ArrowSchemas.check(new Schema(List.of(dictionary)), number));
    assertThrows(IllegalArgumentException.class, () -> ArrowSchemas.check(new Schema(List.of(large)), text));
    assertThrows(IllegalArgumentException.class, () -> ArrowSchemas.check(new Schema(List.of(decimal)), exact));
    assertThrows(
        IllegalArgumentException.class,
        () -> ArrowSchemas.check(new Schema(List.of(new Field("d", plain, null))), text));
  }

  @Test
  void aSchemaIsTheSameAfterItsWayThereAndBack() {
    StructType schema =
        StructType.fromDDL(
            "a STRING, b TIMESTAMP, c MAP<STRING, ARRAY<STRUCT<x: BIGINT, y: DECIMAL(20,3)>>>, d DATE, e BINARY");
    assertEquals(schema, ArrowSchemas.decode(ArrowSchemas.encode(schema)));
  }
}
