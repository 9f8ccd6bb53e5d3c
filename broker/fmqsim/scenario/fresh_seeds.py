"""Draw seeds that have not been run yet: a number drawn from the sources themselves.

Other code gets other seeds, the same code the same ones: so each change meets runs that no change
before it met, and a repeated failed run shows the failure again. Nothing here depends on the time
or the machine.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FROM: Final = 1_000_000_000
"""Drawn seeds start here; seeds that people type are smaller."""
BLOCK: Final = 10_000
"""Drawn numbers are multiples of this, so that different runs of seeds never overlap."""
_BLOCKS: Final = 1_000_000
_ROOT: Final = Path(__file__).resolve().parents[3]
SOURCES: Final = (
    *(
        f"broker/fmq{part}/**/*.py"
        for part in ("core", "port", "wire", "adapters", "broker", "client", "sim")
    ),
    "proto/fmqproto/**/*.py",
    *(f"e2e/{part}/**/*.py" for part in ("checks", "history", "traffic")),
)
"""The sources that determine a simulated run."""


def fresh_seed(root: Path = _ROOT, sources: Iterable[str] = SOURCES) -> int:
    """Return the first seed for the sources below `root`: names and contents, without tests.

    Raises FileNotFoundError when a pattern of `sources` names no file.
    """
    seen = hashlib.sha256()
    for pattern in sources:
        names = [file.relative_to(root) for file in sorted(root.glob(pattern))]
        names = [name for name in names if "tests" not in name.parts]
        if not names:
            raise FileNotFoundError(f"no sources: {root / pattern}")
        for name in names:
            data = (root / name).read_bytes()
            seen.update(f"{name.as_posix()} {len(data)}\n".encode())
            seen.update(data)
    return FROM + int.from_bytes(seen.digest()[:8], "big") % _BLOCKS * BLOCK
