package io.dspark.json;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ArrowPartitionReaderTest {
  @TempDir Path folder;
  private PythonCommand command;

  @BeforeEach
  void start() throws IOException {
    command = FakeWorker.command(folder, Version.RELEASE);
  }

  @AfterEach
  void stop() throws IOException {
    assertEquals(0, ArrowUtils.rootAllocator().getAllocatedMemory());
    Workers.get(command).destroy();
  }

  private PartitionReader<ColumnarBatch> reader(String split) {
    return new ArrowPartitionReaderFactory(command, null)
        .createColumnarReader(SplitPartition.of("task", split, FakeWorker.SCHEMA));
  }

  private static List<List<Object>> readAll(PartitionReader<ColumnarBatch> reader) throws IOException {
    List<List<Object>> rows = new ArrayList<>();
    try (reader) {
      while (reader.next()) {
        reader.get().rowIterator().forEachRemaining(row -> rows.add(Values.plain(row, FakeWorker.SCHEMA)));
      }
      assertFalse(reader.next());
    }
    return rows;
  }

  private static List<List<Object>> expected() {
    return FakeWorker.rows().stream().map(row -> Values.plain(row, FakeWorker.SCHEMA)).toList();
  }

  private static Map<String, Long> metrics(PartitionReader<ColumnarBatch> reader) {
    return Arrays.stream(reader.currentMetricsValues())
        .collect(Collectors.toMap(CustomTaskMetric::name, CustomTaskMetric::value));
  }

  @Test
  void rowsComeInOrderAndTheirCountsAfterThem() throws IOException {
    PartitionReader<ColumnarBatch> reader = reader("whole");
    assertEquals(expected(), readAll(reader));
    assertEquals(500, metrics(reader).get("records"));
    assertEquals(3_000_000, metrics(reader).get("parse_time_ms"), "in nanoseconds until it is shown");
    assertTrue(metrics(reader).get("arrow_bytes") > 0);
  }

  @Test
  void aReadThatIsCutShortGoesOnWithANewWorker() throws IOException {
    PartitionReader<ColumnarBatch> reader = reader("dies twice");
    assertEquals(expected(), readAll(reader));
    assertEquals(2, metrics(reader).get("resumed_reads"));
    assertEquals(500, metrics(reader).get("records"));
  }

  @Test
  void onlyTheTrailerSaysThatAReadWasWhole() throws IOException {
    PartitionReader<ColumnarBatch> reader = reader("dies before the trailer");
    assertEquals(expected(), readAll(reader));
    assertEquals(1, metrics(reader).get("resumed_reads"));
  }

  @Test
  void threeDeathsWithoutARowAreAnError() {
    DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> readAll(reader("always dies")));
    assertEquals("DSPARK_JSON_WORKER_DIED", error.getCondition());
  }

  @Test
  void anErrorInTheMiddleKeepsItsCodeAndText() {
    DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> readAll(reader("fails in the middle")));
    assertEquals("DSPARK_JSON_MALFORMED_RECORD", error.getCondition());
    assertEquals("DSPARK_JSON_MALFORMED_RECORD: record 201", error.getMessage());
  }

  @Test
  void whatCantBeRightIsAFaultAndNeverARow() {
    for (String split : List.of("garbage", "miscounts", "other columns")) {
      DSparkJsonException error = assertThrows(DSparkJsonException.class, () -> readAll(reader(split)), split);
      assertEquals("DSPARK_JSON_INTERNAL", error.getCondition());
    }
  }

  @Test
  void aReadMayBeAbandonedAnywhere() throws IOException {
    for (int batches = 0; batches < FakeWorker.BATCHES; batches++) {
      PartitionReader<ColumnarBatch> reader = reader("whole");
      for (int k = 0; k < batches; k++) {
        assertTrue(reader.next());
      }
      reader.close();
      assertFalse(reader.next());
      reader.close();
    }
    assertEquals(expected(), readAll(reader("whole")));
  }

  @Test
  void theReaderOwnsTheMemoryWhateverSparkClosesOfABatch() throws IOException {
    PartitionReader<ColumnarBatch> reader = reader("whole");
    List<List<Object>> rows = new ArrayList<>();
    while (reader.next()) {
      ColumnarBatch batch = reader.get();
      long allocated = ArrowUtils.rootAllocator().getAllocatedMemory();
      assertTrue(allocated > 0);
      batch.closeIfFreeable(); // what Spark calls after each batch
      batch.close();
      batch.column(0).close();
      assertEquals(allocated, ArrowUtils.rootAllocator().getAllocatedMemory());
      batch.rowIterator().forEachRemaining(row -> rows.add(Values.plain(row, FakeWorker.SCHEMA)));
    }
    assertEquals(expected(), rows);
    reader.close();
    assertEquals(0, ArrowUtils.rootAllocator().getAllocatedMemory());
    assertTrue(ArrowUtils.rootAllocator().getChildAllocators().isEmpty());
  }

  @Test
  void aReadThatFailedHasGivenItsMemoryBackBeforeItIsClosed() throws IOException {
    try (PartitionReader<ColumnarBatch> reader = reader("fails in the middle")) {
      assertThrows(
          DSparkJsonException.class,
          () -> {
            while (reader.next()) {
              assertTrue(ArrowUtils.rootAllocator().getAllocatedMemory() > 0);
            }
          });
      assertEquals(0, ArrowUtils.rootAllocator().getAllocatedMemory());
    }
  }
}
