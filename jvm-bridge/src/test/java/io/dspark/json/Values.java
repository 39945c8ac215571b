package io.dspark.json;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Random types and values of them, and values of any kind of row as plain ones that can be compared. */
final class Values {
  private static final List<DataType> PLAIN =
      List.of(
          DataTypes.BooleanType,
          DataTypes.ByteType,
          DataTypes.ShortType,
          DataTypes.IntegerType,
          DataTypes.LongType,
          DataTypes.FloatType,
          DataTypes.DoubleType,
          DataTypes.StringType,
          DataTypes.BinaryType,
          DataTypes.DateType,
          DataTypes.TimestampType,
          DataTypes.TimestampNTZType,
          DataTypes.createDecimalType(10, 2),
          DataTypes.createDecimalType(38, 7));

  private final Random random;
  private final double nulls;

  Values(Random random, double nulls) {
    this.random = random;
    this.nulls = nulls;
  }

  /** All types of a single value. */
  static List<DataType> plainTypes() {
    return PLAIN;
  }

  StructType schema(int depth) {
    StructType schema = new StructType();
    int width = random.nextInt(5);
    for (int i = 0; i < width; i++) {
      schema = schema.add("c" + i, type(depth));
    }
    return schema;
  }

  private DataType type(int depth) {
    int kind = depth == 0 ? 3 : random.nextInt(6);
    return switch (kind) {
      case 0 -> schema(depth - 1).add("last", DataTypes.StringType);
      case 1 -> DataTypes.createArrayType(type(depth - 1));
      case 2 -> DataTypes.createMapType(DataTypes.StringType, type(depth - 1));
      default -> PLAIN.get(random.nextInt(PLAIN.size()));
    };
  }

  List<InternalRow> rows(StructType schema, int count) {
    List<InternalRow> rows = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      rows.add(row(schema));
    }
    return rows;
  }

  private InternalRow row(StructType schema) {
    Object[] values = new Object[schema.fields().length];
    for (int i = 0; i < values.length; i++) {
      values[i] = value(schema.fields()[i].dataType());
    }
    return new GenericInternalRow(values);
  }

  private Object value(DataType type) {
    return random.nextDouble() < nulls ? null : present(type);
  }

  private Object present(DataType type) {
    if (type instanceof StructType struct) {
      return row(struct);
    }
    if (type instanceof ArrayType array) {
      Object[] values = new Object[random.nextInt(4)];
      for (int i = 0; i < values.length; i++) {
        values[i] = value(array.elementType());
      }
      return new GenericArrayData(values);
    }
    if (type instanceof MapType map) {
      Object[] keys = new Object[random.nextInt(4)];
      Object[] values = new Object[keys.length];
      for (int i = 0; i < keys.length; i++) {
        keys[i] = UTF8String.fromString("k" + i);
        values[i] = value(map.valueType());
      }
      return new ArrayBasedMapData(new GenericArrayData(keys), new GenericArrayData(values));
    }
    if (type instanceof DecimalType decimal) {
      int bits = decimal.precision() == 38 ? 120 : 32;
      BigInteger digits = new BigInteger(bits, random).subtract(BigInteger.ONE.shiftLeft(bits - 1));
      return Decimal.apply(new BigDecimal(digits, decimal.scale()), decimal.precision(), decimal.scale());
    }
    if (type instanceof StringType) {
      List<String> texts = List.of("", "a", "žluťoučký 🐎", "x".repeat(random.nextInt(300)));
      return UTF8String.fromString(texts.get(random.nextInt(texts.size())));
    }
    if (type instanceof BinaryType) {
      byte[] bytes = new byte[random.nextInt(20)];
      random.nextBytes(bytes);
      return bytes;
    }
    return switch (type.typeName()) {
      case "boolean" -> random.nextBoolean();
      case "byte" -> (byte) random.nextInt();
      case "short" -> (short) random.nextInt();
      case "integer", "date" -> random.nextInt();
      case "float" -> random.nextFloat();
      case "double" -> random.nextGaussian();
      default -> random.nextLong();
    };
  }

  /** The fields of a row as lists, maps, strings and numbers. */
  static List<Object> plain(InternalRow row, StructType schema) {
    List<Object> values = new ArrayList<>();
    StructField[] fields = schema.fields();
    for (int i = 0; i < fields.length; i++) {
      values.add(plain(row, i, fields[i].dataType()));
    }
    return values;
  }

  private static Object plain(SpecializedGetters from, int i, DataType type) {
    if (from.isNullAt(i)) {
      return null;
    }
    if (type instanceof StructType struct) {
      return plain(from.getStruct(i, struct.fields().length), struct);
    }
    if (type instanceof ArrayType array) {
      return plain(from.getArray(i), array.elementType());
    }
    if (type instanceof MapType map) {
      MapData data = from.getMap(i);
      List<Object> keys = plain(data.keyArray(), map.keyType());
      List<Object> values = plain(data.valueArray(), map.valueType());
      TreeMap<String, Object> plain = new TreeMap<>();
      for (int k = 0; k < data.numElements(); k++) {
        plain.put(keys.get(k).toString(), values.get(k));
      }
      return plain;
    }
    if (type instanceof DecimalType decimal) {
      return from.getDecimal(i, decimal.precision(), decimal.scale()).toJavaBigDecimal();
    }
    if (type instanceof StringType) {
      return from.getUTF8String(i).toString();
    }
    if (type instanceof BinaryType) {
      return HexFormat.of().formatHex(from.getBinary(i));
    }
    return switch (type.typeName()) {
      case "boolean" -> from.getBoolean(i);
      case "byte" -> from.getByte(i);
      case "short" -> from.getShort(i);
      case "integer", "date" -> from.getInt(i);
      case "float" -> from.getFloat(i);
      case "double" -> from.getDouble(i);
      default -> from.getLong(i);
    };
  }

  private static List<Object> plain(ArrayData array, DataType type) {
    List<Object> values = new ArrayList<>();
    for (int i = 0; i < array.numElements(); i++) {
      values.add(plain(array, i, type));
    }
    return values;
  }
}
