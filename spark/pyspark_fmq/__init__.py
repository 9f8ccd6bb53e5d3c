"""Makes `format("fmq")` known to Spark, which looks into packages whose names begin so."""

from fmqspark.spark.source import FmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
