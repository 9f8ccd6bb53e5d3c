"""The archive for a pod of a story on kind is complete: the pod has no other module of `e2e`."""

import base64
import os
import subprocess
import sys
from pathlib import Path

from e2e.kind.story import code


def test_witness_archive_has_every_module_it_imports(tmp_path: Path) -> None:
    archive = tmp_path / "e2e.zip"
    archive.write_bytes(base64.b64decode(code("any")["binaryData"]["e2e.zip"]))
    assert archive.stat().st_size < 500_000, "it must fit into a ConfigMap"
    script = "import e2e, e2e.kind.witness; print(e2e.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(archive)), done.stdout
