"""Make `format("fmq")` known to Spark, which searches packages that start `pyspark_`."""

from fmqspark.spark.source import FmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
