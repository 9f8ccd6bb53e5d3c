"""No module of the product imports itself, through however many others."""

import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

_ROOT = Path(__file__).parents[2]


def _imports() -> dict[str, set[str]]:
    """Return every module of the import contracts with the modules that it imports, types too."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph(*contracts["root_packages"], cache_dir=None)
    modules = {name for name in graph.modules if ".tests" not in name}
    return {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}


def test_product_has_no_import_cycle() -> None:
    imports = _imports()
    assert len(imports) > 500, "the whole product is looked at"
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_a_cycle_is_found() -> None:
    imports = _imports()
    imports["fmqcore.ids"] |= {"fmqbroker.app.broker"}
    with pytest.raises(CycleError):
        TopologicalSorter(imports).prepare()
