"""FMQ's data jobs on a data directory: check, rebuild the indexes, and what Spark reads.

Stands on `fmqcore`; knows no broker and no client. pyspark is imported in `fmqspark.spark` only,
pyarrow only where columns become Arrow, so that one machine needs neither for a check.
"""
