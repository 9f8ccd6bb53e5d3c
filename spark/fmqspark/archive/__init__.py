"""Topics as partitioned Parquet, and back.

`job` plans an archive run, `write` writes files, `ledger` keeps what is archived, `integrity` its
checksums, `replay` sends it back.
"""
