"""Lets Spark find the Python data source by name: ``spark.readStream.format("dspark-json")`` without a jar."""

from dspark_json.source.datasource import DSparkJsonDataSource as DefaultSource

__all__ = ["DefaultSource"]
