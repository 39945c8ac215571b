package io.dspark.json;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.channels.Channels;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** Schemas on their way between Spark and the worker: base64 of Arrow's IPC schema message. */
final class ArrowSchemas {
  private static final String TIME_ZONE = "UTC";
  private static final int DECIMAL_BITS = 128;

  private ArrowSchemas() {}

  /** The text of a schema of Spark. */
  static String encode(StructType schema) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try {
      MessageSerializer.serialize(new WriteChannel(Channels.newChannel(bytes)), toArrow(schema));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }

  /** The schema of Spark in such a text. */
  static StructType decode(String text) {
    byte[] bytes = Base64.getDecoder().decode(text);
    try {
      ReadChannel channel = new ReadChannel(Channels.newChannel(new ByteArrayInputStream(bytes)));
      return ArrowUtils.fromArrowSchema(MessageSerializer.deserializeSchema(channel));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Checks that batches of one schema can be read as columns of another.
   *
   * @throws IllegalArgumentException where they can't
   */
  static void check(Schema sent, StructType wanted) {
    sent.getFields().forEach(ArrowSchemas::checkPlain);
    StructType got = ArrowUtils.fromArrowSchema(sent);
    if (!DataType.equalsIgnoreNullability(got, wanted)) {
      throw new IllegalArgumentException(
          "the rows sent are " + got.catalogString() + ", asked for were " + wanted.catalogString());
    }
  }

  private static void checkPlain(Field field) {
    // Spark takes these for the same type in their usual layout.
    ArrowType type = field.getType();
    if (field.getDictionary() != null
        || type instanceof ArrowType.LargeUtf8
        || type instanceof ArrowType.LargeBinary
        || type instanceof ArrowType.LargeList
        || type instanceof ArrowType.Decimal decimal && decimal.getBitWidth() != DECIMAL_BITS) {
      throw new IllegalArgumentException("column " + field.getName() + " has a layout that can't be read: " + field);
    }
    field.getChildren().forEach(ArrowSchemas::checkPlain);
  }

  /** Spark's own translation; its parameters after the third one, all switches, differ from version to version. */
  static Schema toArrow(StructType schema) {
    Method method =
        Arrays.stream(ArrowUtils.class.getMethods())
            .filter(m -> m.getName().equals("toArrowSchema") && m.getParameterCount() >= 3)
            .max(Comparator.comparingInt(Method::getParameterCount))
            .orElseThrow(() -> new NoSuchMethodError("ArrowUtils.toArrowSchema"));
    Object[] arguments = new Object[method.getParameterCount()];
    Arrays.fill(arguments, false);
    arguments[0] = schema;
    arguments[1] = TIME_ZONE;
    arguments[2] = true;
    try {
      return (Schema) method.invoke(null, arguments);
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof RuntimeException cause) {
        throw cause;
      }
      throw new IllegalStateException(e.getCause());
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }
}
