package io.dspark.json;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** What several prunings of one schema need together. */
final class SchemaUnion {
  private SchemaUnion() {}

  /** The part of {@code full} that is in {@code a} or in {@code b}, in the order of {@code full}. */
  static StructType of(StructType full, StructType a, StructType b) {
    Map<String, StructField> inA = byName(a);
    Map<String, StructField> inB = byName(b);
    List<StructField> fields = new ArrayList<>();
    for (StructField field : full.fields()) {
      StructField one = inA.get(field.name());
      StructField other = inB.get(field.name());
      if (one != null && other != null) {
        DataType type = of(field.dataType(), one.dataType(), other.dataType());
        fields.add(new StructField(field.name(), type, field.nullable(), field.metadata()));
      } else if (one != null || other != null) {
        fields.add(one != null ? one : other);
      }
    }
    return new StructType(fields.toArray(new StructField[0]));
  }

  private static DataType of(DataType full, DataType a, DataType b) {
    if (full instanceof StructType struct) {
      return of(struct, (StructType) a, (StructType) b);
    }
    if (full instanceof ArrayType array) {
      DataType element = of(array.elementType(), ((ArrayType) a).elementType(), ((ArrayType) b).elementType());
      return new ArrayType(element, array.containsNull());
    }
    if (full instanceof MapType map) {
      DataType key = of(map.keyType(), ((MapType) a).keyType(), ((MapType) b).keyType());
      DataType value = of(map.valueType(), ((MapType) a).valueType(), ((MapType) b).valueType());
      return new MapType(key, value, map.valueContainsNull());
    }
    return full;
  }

  private static Map<String, StructField> byName(StructType schema) {
    return Arrays.stream(schema.fields()).collect(Collectors.toMap(StructField::name, Function.identity()));
  }
}
