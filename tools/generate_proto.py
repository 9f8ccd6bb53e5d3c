"""Generate the stubs from `proto/`; with `--check`, only report whether they match."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"


def generate(into: Path) -> None:
    """Write `*_pb2.py` and `*_pb2.pyi` of every `.proto` file below `into`."""
    files = sorted(str(p.relative_to(PROTO)) for p in PROTO.rglob("*.proto"))
    arguments = ["protoc", f"-I{PROTO}", f"--python_out={into}", f"--pyi_out={into}", *files]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")


def main() -> int:
    """Generate, or compare."""
    if "--check" not in sys.argv:
        generate(PROTO)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = [
            str(made.relative_to(folder))
            for made in sorted(Path(folder).rglob("*_pb2.py*"))
            if not _same(made, PROTO / made.relative_to(folder))
        ]
    for name in stale:
        print(f"proto/{name} does not match its .proto file: run `make proto`", file=sys.stderr)
    return 1 if stale else 0


def _same(made: Path, kept: Path) -> bool:
    return kept.exists() and made.read_bytes() == kept.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
