package io.dspark.json;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

class SchemaUnionTest {
  private static final StructType FULL =
      StructType.fromDDL(
          "id STRING, choices ARRAY<STRUCT<index: INT, message: STRUCT<role: STRING, content: STRING>, text: STRING>>, "
              + "tags MAP<STRING, STRUCT<a: INT, b: INT>>, n BIGINT");

  private static void assertUnion(String expected, String a, String b) {
    StructType one = StructType.fromDDL(a);
    StructType other = StructType.fromDDL(b);
    assertEquals(StructType.fromDDL(expected), SchemaUnion.of(FULL, one, other));
    assertEquals(StructType.fromDDL(expected), SchemaUnion.of(FULL, other, one));
  }

  @Test
  void columnsKeepTheOrderOfTheFullSchema() {
    assertUnion("id STRING, n BIGINT", "n BIGINT", "id STRING");
  }

  @Test
  void nestedFieldsOfBothAreThere() {
    assertUnion(
        "choices ARRAY<STRUCT<message: STRUCT<role: STRING, content: STRING>, text: STRING>>",
        "choices ARRAY<STRUCT<message: STRUCT<content: STRING>>>",
        "choices ARRAY<STRUCT<message: STRUCT<role: STRING>, text: STRING>>");
    assertUnion(
        "tags MAP<STRING, STRUCT<a: INT, b: INT>>",
        "tags MAP<STRING, STRUCT<b: INT>>",
        "tags MAP<STRING, STRUCT<a: INT>>");
  }

  @Test
  void noColumnsAddNothing() {
    assertEquals(
        StructType.fromDDL("n BIGINT"), SchemaUnion.of(FULL, new StructType(), StructType.fromDDL("n BIGINT")));
    assertEquals(new StructType(), SchemaUnion.of(FULL, new StructType(), new StructType()));
  }
}
