"""Where pyspark is imported, and nowhere else."""
