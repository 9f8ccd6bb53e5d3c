"""A journal's records as columns: what to read, where it lies, Arrow batches. No Spark in here."""
