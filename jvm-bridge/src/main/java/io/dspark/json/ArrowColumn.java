package io.dspark.json;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteOrder;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column whose values lie in Arrow's layout somewhere in memory. It reads and never owns them.
 *
 * <p>One tree of columns serves all batches of a read: {@link #bind} points it at the next batch. There is one class
 * for all types, so that the virtual machine can inline the getters where rows are made of columns; Spark calls only
 * the getters that fit a column's type. Bounds are checked once a batch, in {@code bind}, not once a value.
 *
 * <p>Layout: <a href="https://arrow.apache.org/docs/format/Columnar.html">Arrow columnar format</a>, with 32-bit
 * offsets.
 */
public final class ArrowColumn extends ColumnVector {
  private enum Layout {
    BITS,
    FIXED,
    BYTES,
    LIST,
    MAP,
    STRUCT
  }

  private static final ArrowColumn[] NO_CHILDREN = {};
  private static final int DECIMAL_BYTES = 16;

  private final Layout layout;
  private final int width;
  private final ArrowColumn[] children;

  private int nulls;
  /** Address of a bit a row, set where there is a value; 0 where no row is null. */
  private long validity;
  private long offsets;
  private long values;

  /**
   * A column that is bound to no batch yet.
   *
   * @throws IllegalArgumentException where rows never have this type
   */
  public ArrowColumn(DataType type) {
    super(type);
    if (type instanceof StructType struct) {
      layout = Layout.STRUCT;
      width = 0;
      children = of(struct);
    } else if (type instanceof ArrayType array) {
      layout = Layout.LIST;
      width = 0;
      children = new ArrowColumn[] {new ArrowColumn(array.elementType())};
    } else if (type instanceof MapType map) {
      // Arrow's map is a list of entries.
      layout = Layout.MAP;
      width = 0;
      StructType entry =
          new StructType().add("key", map.keyType(), false).add("value", map.valueType(), map.valueContainsNull());
      children = new ArrowColumn[] {new ArrowColumn(entry)};
    } else {
      children = NO_CHILDREN;
      width = fixedWidth(type);
      if (width > 0) {
        layout = Layout.FIXED;
      } else if (type instanceof BooleanType) {
        layout = Layout.BITS;
      } else if (type instanceof StringType || type instanceof BinaryType) {
        layout = Layout.BYTES;
      } else {
        throw new IllegalArgumentException("no column can have the type " + type.catalogString());
      }
    }
  }

  /** The columns of rows of this type. */
  public static ArrowColumn[] of(StructType rows) {
    ArrowColumn[] columns = new ArrowColumn[rows.fields().length];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new ArrowColumn(rows.fields()[i].dataType());
    }
    return columns;
  }

  private static int fixedWidth(DataType type) {
    if (type instanceof LongType
        || type instanceof DoubleType
        || type instanceof TimestampType
        || type instanceof TimestampNTZType) {
      return Long.BYTES;
    }
    if (type instanceof IntegerType || type instanceof FloatType || type instanceof DateType) {
      return Integer.BYTES;
    }
    if (type instanceof DecimalType) {
      return DECIMAL_BYTES;
    }
    if (type instanceof ShortType) {
      return Short.BYTES;
    }
    return type instanceof ByteType ? Byte.BYTES : 0;
  }

  /**
   * Points this column and those inside it at their buffers, which are the next ones of a batch.
   *
   * @param rows how many rows are going to be read at least
   * @throws IllegalArgumentException where a buffer is too small for its rows
   */
  void bind(ArrowBatch.Buffers buffers, long rows) {
    long length = buffers.nextNode();
    if (length < rows) {
      throw new IllegalArgumentException(length + " values for " + rows + " rows of " + dataType().catalogString());
    }
    nulls = buffers.nulls();
    validity = buffers.nextBuffer(nulls == 0 ? 0 : bytesOfBits(rows));
    if (nulls == 0) {
      validity = 0;
    }
    switch (layout) {
      case BITS -> values = buffers.nextBuffer(bytesOfBits(rows));
      case FIXED -> values = buffers.nextBuffer(rows * width);
      case BYTES -> {
        long end = bindOffsets(buffers, rows);
        values = buffers.nextBuffer(end);
      }
      case LIST, MAP -> {
        long end = bindOffsets(buffers, rows);
        children[0].bind(buffers, end);
      }
      case STRUCT -> {
        for (ArrowColumn child : children) {
          child.bind(buffers, rows);
        }
      }
    }
  }

  /** Binds the offsets and returns the last one: how much there must be of what they point into. */
  private long bindOffsets(ArrowBatch.Buffers buffers, long rows) {
    // The format allows the buffer to be empty where there are no rows.
    offsets = buffers.nextBuffer(rows == 0 ? 0 : (rows + 1) * Integer.BYTES);
    if (rows == 0) {
      return 0;
    }
    int first = Platform.getInt(null, offsets);
    int last = Platform.getInt(null, offsets + rows * Integer.BYTES);
    if (first < 0 || last < first) {
      throw new IllegalArgumentException(
          "offsets of " + dataType().catalogString() + " go from " + first + " to " + last);
    }
    return last;
  }

  private static long bytesOfBits(long bits) {
    return (bits + Byte.SIZE - 1) / Byte.SIZE;
  }

  private static boolean bit(long address, int i) {
    return (Platform.getByte(null, address + (i >>> 3)) >>> (i & 7) & 1) != 0;
  }

  private int offset(int i) {
    return Platform.getInt(null, offsets + (long) i * Integer.BYTES);
  }

  /** Does nothing: whoever reads batches owns their memory, and Spark calls this when it is done with one batch. */
  @Override
  public void close() {}

  /** Does nothing, like {@link #close}. */
  @Override
  public void closeIfFreeable() {}

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return nulls;
  }

  @Override
  public boolean isNullAt(int i) {
    return validity != 0 && !bit(validity, i);
  }

  @Override
  public boolean getBoolean(int i) {
    return bit(values, i);
  }

  @Override
  public byte getByte(int i) {
    return Platform.getByte(null, values + i);
  }

  @Override
  public short getShort(int i) {
    return Platform.getShort(null, values + (long) i * Short.BYTES);
  }

  @Override
  public int getInt(int i) {
    return Platform.getInt(null, values + (long) i * Integer.BYTES);
  }

  @Override
  public long getLong(int i) {
    return Platform.getLong(null, values + (long) i * Long.BYTES);
  }

  @Override
  public float getFloat(int i) {
    return Platform.getFloat(null, values + (long) i * Float.BYTES);
  }

  @Override
  public double getDouble(int i) {
    return Platform.getDouble(null, values + (long) i * Double.BYTES);
  }

  @Override
  public Decimal getDecimal(int i, int precision, int scale) {
    if (isNullAt(i)) {
      return null;
    }
    long at = values + (long) i * DECIMAL_BYTES;
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      // The high half repeats the sign.
      return Decimal.createUnsafe(Platform.getLong(null, at), precision, scale);
    }
    byte[] bigEndian = new byte[DECIMAL_BYTES];
    for (int b = 0; b < DECIMAL_BYTES; b++) {
      bigEndian[b] = Platform.getByte(null, at + DECIMAL_BYTES - 1 - b);
    }
    return Decimal.apply(new BigDecimal(new BigInteger(bigEndian), scale), precision, scale);
  }

  /** The string where it lies: good until the next batch, as Spark expects of a columnar source. */
  @Override
  public UTF8String getUTF8String(int i) {
    if (isNullAt(i)) {
      return null;
    }
    int begin = offset(i);
    return UTF8String.fromAddress(null, values + begin, offset(i + 1) - begin);
  }

  @Override
  public byte[] getBinary(int i) {
    if (isNullAt(i)) {
      return null;
    }
    int begin = offset(i);
    byte[] bytes = new byte[offset(i + 1) - begin];
    Platform.copyMemory(null, values + begin, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  @Override
  public ColumnarArray getArray(int i) {
    if (isNullAt(i)) {
      return null;
    }
    int begin = offset(i);
    return new ColumnarArray(children[0], begin, offset(i + 1) - begin);
  }

  @Override
  public ColumnarMap getMap(int i) {
    if (isNullAt(i)) {
      return null;
    }
    int begin = offset(i);
    ArrowColumn entries = children[0];
    return new ColumnarMap(entries.children[0], entries.children[1], begin, offset(i + 1) - begin);
  }

  @Override
  public ArrowColumn getChild(int ordinal) {
    return children[ordinal];
  }

  static {
    if (ByteOrder.nativeOrder() != ByteOrder.LITTLE_ENDIAN) {
      throw new UnsupportedOperationException("dspark-json reads Arrow's little-endian layout in place");
    }
  }
}
