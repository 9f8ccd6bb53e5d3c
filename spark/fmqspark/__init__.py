"""FMQ's data jobs: check, rebuild indexes, archive, replay, and what Spark reads.

    cli       `fmq job ...`: options, progress, errors in one line
    check | archive | rebuild     the jobs
    engines   where tasks run: this process, a pool of processes, Spark
    spark     the data source and streams for PySpark
    source    a journal's records as columns; where directories and brokers are

Builds on `fmqcore`, without the broker and the client. pyspark is imported in `fmqspark.spark` and
`fmqspark.engines.spark` only, pyarrow only where columns become Arrow, so a check needs neither.
"""
