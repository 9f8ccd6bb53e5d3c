"""Write a check's rows to `findings.parquet` and `coverage.parquet`. Needs pyarrow."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fmqcore.errors import Unavailable
from fmqspark.check.rows import Covered, Found

if TYPE_CHECKING:
    pass

_FINDINGS: Final = (
    ("replica", "string"),
    ("code", "string"),
    ("severity", "string"),
    ("file", "string"),
    ("begin", "uint64"),
    ("end", "uint64"),
    ("sentence", "string"),
    ("remedy", "string"),
)
_COVERAGE: Final = (
    ("replica", "string"),
    ("file", "string"),
    ("begin", "uint64"),
    ("end", "uint64"),
    ("state", "string"),
    ("why", "string"),
)


def require_arrow(what: str = "the reports need", else_: str = ", or leave --out away") -> None:
    """Raise `Unavailable` now rather than after hours of work."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise Unavailable(f"{what} pyarrow: pip install 'fmq-broker[spark]'{else_}") from None


def write_findings(path: Path, rows: Sequence[Found]) -> None:
    """Write one row per finding."""
    _write(path, _FINDINGS, rows)


def write_coverage(path: Path, rows: Sequence[Covered]) -> None:
    """Write one row per range."""
    _write(path, _COVERAGE, rows)


def _write(path: Path, fields: Sequence[tuple[str, str]], rows: Sequence[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema: pa.Schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in fields])
    columns = [[row[i] for row in rows] for i in range(len(fields))]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
