package io.dspark.json;

import java.util.AbstractSet;
import java.util.Collections;
import java.util.Iterator;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table that can't be read with the options and the schema given.
 *
 * <p>Spark asks for a table with the schema of what is to be written, too, and by what it asks the table for next it is
 * known which of them it was: whoever reads gets the error, whoever writes is told that nothing can be written here.
 */
final class UnreadableTable implements Table, SupportsRead {
  private final StructType schema;
  private final Exception reason;

  UnreadableTable(StructType schema, Exception reason) {
    this.schema = schema;
    this.reason = reason;
  }

  @Override
  public String name() {
    return DSparkJsonProvider.NAME;
  }

  @Override
  @SuppressWarnings("deprecation") // columns() of all Spark versions falls back to it
  public StructType schema() {
    return schema;
  }

  /** None; asking for one that a reader needs throws the reason. */
  @Override
  public Set<TableCapability> capabilities() {
    return new AbstractSet<>() {
      @Override
      public boolean contains(Object wanted) {
        if (wanted == TableCapability.BATCH_READ || wanted == TableCapability.MICRO_BATCH_READ) {
          throw DriverErrors.again(reason);
        }
        return false;
      }

      @Override
      public Iterator<TableCapability> iterator() {
        return Collections.emptyIterator();
      }

      @Override
      public int size() {
        return 0;
      }
    };
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    throw DriverErrors.again(reason);
  }
}
