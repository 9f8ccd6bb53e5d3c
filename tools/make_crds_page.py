"""Writes `docs/reference/crds.md`: every field that a person sets in a custom resource.

    python tools/make_crds_page.py [--check]

Fields, defaults, bounds and texts come from the CRDs in the chart, which the models make
(`python -m fmqoperator.crd`); `--check` (in `make check`) fails if the page differs from them.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for a run as a file

from tools.generated_page import update

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "crds.md"
CRDS: Final = ROOT / "charts" / "fmq" / "files" / "crds"
KINDS: Final = ("brokergroups", "topics", "brokerjobs")
HEAD: Final = """# Custom resources

Fields of `spec` in group and version `fmq.io/v1alpha1`. Generated:
`python tools/make_crds_page.py`. `kubectl explain brokergroup` also shows the fields of `status`. A
resource that breaks a rule is refused with a message.
"""


def main(arguments: list[str]) -> int:
    """Write the page; with --check, return 1 if it is not as it would be written."""
    return update(PAGE, page(), __file__, arguments)


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(section(yaml.safe_load(file_of(kind).read_text())) for kind in KINDS)


def file_of(kind: str) -> Path:
    """Return the file of a definition."""
    return CRDS / f"{kind}.yaml"


def section(definition: Mapping[str, Any]) -> str:
    """Return the heading and the table of one kind."""
    names = definition["spec"]["names"]
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = ["| field | default | may be | meaning |", "|---|---|---|---|"]
    rows += [f"| {' | '.join(escaped(cell) for cell in row)} |" for row in fields(schema)]
    short = ", ".join(f"`{name}`" for name in names.get("shortNames", []))
    return (
        f"\n## {names['kind']}\n\n{f'Short: {short}.' if short else ''}\n\n"
        + "\n".join(rows)
        + "\n"
    )


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, ...]]:
    """Yield a row for each field below a schema: name, default, bounds, meaning."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        items = field.get("items", {})
        inner = items if items.get("properties") else field
        place = f"{path}{name}{'[]' if inner is items else ''}"
        default = "required" if name in required else written(field.get("default"))
        if inner.get("properties"):
            if field.get("description"):
                yield f"`{place}`", "required" if name in required else "", "", field["description"]
            yield from fields(inner, f"{place}.")
        else:
            yield f"`{place}`", default, bounds(field), field.get("description", "")


def written(default: Any) -> str:
    """Return a default as one writes it in YAML."""
    if default is None:
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def bounds(field: Mapping[str, Any]) -> str:
    """Return which values the schema allows."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    low, high = field.get("minimum"), field.get("maximum")
    if low is None and high is None:
        return str(field.get("type", "integer or string"))
    if high is None:
        return f"from {low}"
    return f"{'' if low is None else low} to {high}".strip()


def escaped(cell: str) -> str:
    """Return a cell whose text ends no cell."""
    return " ".join(cell.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
