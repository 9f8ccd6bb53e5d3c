"""Topics as partitioned Parquet, and back."""
