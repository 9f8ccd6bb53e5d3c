"""What `import fmqclient` loads: modules cost the time in which a small program starts."""

import subprocess
import sys
from typing import Final

LATER: Final = (
    "fmqadapters.grpc",
    "fmqclient.admin",
    "fmqclient.producer.ordered",
    "fmqclient.producer.ordered_state",
    "fmqclient.sync",
    "fmqcore.zk.chain",
    "google.protobuf.json_format",
    "grpc",
    "prometheus_client",
    "structlog",
    "yaml",
)
"""Modules that only some programs need. Each takes 5 to 100 ms."""


def loaded(program: str) -> set[str]:
    """Return the modules of a fresh interpreter that ran the program."""
    command = [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_leaves_parts_that_few_programs_need() -> None:
    modules = loaded("import fmqclient")
    assert "fmqclient.client" in modules
    assert modules.isdisjoint(LATER)


def test_ordered_producer_is_loaded_on_first_use() -> None:
    modules = loaded("import fmqclient\nfmqclient.OrderedProducer")
    assert "fmqclient.producer.ordered" in modules
