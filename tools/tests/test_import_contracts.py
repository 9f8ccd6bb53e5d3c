"""The import contracts cover whole packages and make no exception for the product."""

import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_BROKER = _ROOT / "broker"
_CONTRACTS = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]

_EXEMPT = {
    "the shells reach clock": {"fmqclient.sync"},
    "adapters are chosen": {"fmqbroker.app.main", "fmqclient.client"},
}
"""Modules that a contract leaves out on purpose, by the contract's first words."""


def _uncovered(package: str, covered: set[str]) -> set[str]:
    """Return the product modules below `package` that no entry of `covered` contains."""
    names = {
        ".".join(path.relative_to(_BROKER).with_suffix("").parts)
        for path in (_BROKER / package).rglob("*.py")
        if "tests" not in path.parts and path.name != "__init__.py"
    }
    assert names, f"{package} has modules"
    return {
        name for name in names if not any(f"{name}.".startswith(f"{entry}.") for entry in covered)
    }


@pytest.mark.parametrize("start", _EXEMPT)
def test_contract_covers_all_but_its_exemptions(start: str) -> None:
    (contract,) = [c for c in _CONTRACTS if c["name"].startswith(start)]
    sources, exempt = set(contract["source_modules"]), _EXEMPT[start]
    left = {name for package in ("fmqbroker", "fmqclient") for name in _uncovered(package, sources)}
    assert {
        name for name in left if not any(f"{name}.".startswith(f"{e}.") for e in exempt)
    } == set()
    assert all(any(f"{name}.".startswith(f"{e}.") for name in left) for e in exempt), "still needed"


def test_contracts_ignore_imports_of_tests_only() -> None:
    ignored = {entry for contract in _CONTRACTS for entry in contract.get("ignore_imports", [])}
    assert ignored, "some contracts ignore tests"
    assert {entry for entry in ignored if ".tests." not in entry.split(" -> ")[0]} == set()
