package io.dspark.json;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

class TextsTest {
  @Test
  void aPartitionShowsItsRecordsAndNotItsTask() {
    SplitPartition partition = SplitPartition.of("{\"key\":\"s3cret\"}", "{\"lane\":\"0000\"}", new StructType());
    assertFalse(partition.toString().contains("s3cret"));
    assertTrue(partition.toString().contains("0000"));
  }

  @Test
  void errorsEndWithWhatToDo() {
    DSparkJsonException error = new DSparkJsonException("CODE", "it broke.", "Mend it.", null);
    assertEquals("CODE: it broke. Mend it.", error.getMessage());
    assertEquals("CODE: it broke", new DSparkJsonException("CODE", "it broke", "", null).getMessage());
  }
}
