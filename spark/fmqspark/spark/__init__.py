"""Where pyspark is imported: the session, the batch source, the stream."""
