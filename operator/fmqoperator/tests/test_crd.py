"""The schemas by themselves: structural, bounded, described; and equal to the stored ones."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fmqadapters.zookeeper.hosts import check_address
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.settings_spec import SETTINGS
from fmqoperator import crd
from fmqoperator.api.group import HOSTS
from fmqoperator.api.settings import BrokerTuning
from fmqoperator.tests.crd_cases import CASES

ROOT = Path(__file__).resolve().parents[3]


def _schema(kind: crd.Kind) -> dict[str, Any]:
    (version,) = crd.definition(kind)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def _nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from _nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from _nodes(node[key], f"{path}[]")


ALL = [
    (f"{kind.model.__name__}{path}", node)
    for kind in crd.KINDS
    for path, node in _nodes(_schema(kind))
]


def test_structural() -> None:
    for path, node in ALL:
        assert not {"$ref", "$defs", "title", "const", "allOf", "oneOf"} & node.keys(), path
        if "anyOf" in node:
            assert node["x-kubernetes-int-or-string"], path
        else:
            assert isinstance(node["type"], str), path
        assert node.get("default", 0) is not None, path


def test_every_field_is_described() -> None:
    for path, node in ALL:
        if not path.endswith(("[]", ".metadata")):
            assert node.get("description"), path
            assert node["description"][-1] == ".", path


def test_fields_that_rules_read_are_bounded() -> None:
    """The API server estimates a rule's cost from these bounds, and may refuse the schema."""
    for path, node in ALL:
        match node.get("type"):
            case "string" if not path.endswith((".apiVersion", ".kind")):
                assert {"maxLength", "enum"} & node.keys(), path
            case "array":
                assert "maxItems" in node, path
            case "object" if "additionalProperties" in node:
                assert "maxProperties" in node, path


def test_every_rule_has_a_case_that_breaks_it() -> None:
    refused = [case.refused for case in CASES if case.refused]
    for path, node in ALL:
        for rule in node.get("x-kubernetes-validations", ()):
            assert any(words in rule["message"] for words in refused), (path, rule)
            assert len(rule["message"]) < 300, path


def test_small_enough() -> None:
    for name, text in crd.files().items():
        assert len(text.encode()) < crd.MAX_BYTES, name


def test_stored_crds_match_the_models() -> None:
    assert crd.differing(ROOT) == []


def test_crd_check_finds_differences(tmp_path: Path) -> None:
    assert len(crd.differing(tmp_path)) == len(crd.KEPT_IN) * len(crd.KINDS)
    for folder in crd.KEPT_IN:
        (tmp_path / folder).mkdir(parents=True)
        for name, text in crd.files().items():
            (tmp_path / folder / name).write_text(text)
    assert crd.differing(tmp_path) == []
    changed = tmp_path / crd.KEPT_IN[0] / "topics.yaml"
    changed.write_text(changed.read_text() + "#\n")
    (tmp_path / crd.KEPT_IN[1] / "old.yaml").touch()
    assert crd.differing(tmp_path) == [
        "manifests/crds/topics.yaml does not match the models (fmqoperator.crd --write)",
        "charts/fmq/files/crds/old.yaml is of no kind of resource",
    ]


def test_names_columns_subresources() -> None:
    group, topic, job = (yaml.safe_load(text) for text in crd.files().values())
    assert group["spec"]["names"]["shortNames"] == ["bg"]
    assert job["spec"]["names"]["shortNames"] == ["bj"]
    (version,) = group["spec"]["versions"]
    shown = [c["name"] for c in version["additionalPrinterColumns"] if "priority" not in c]
    assert shown == ["MASTER", "ACCESS", "READY", "PHASE", "EPOCH", "LAG", "AGE"]
    assert set(version["subresources"]) == {"status", "scale"}
    for definition in (group, topic, job):
        assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_columns_and_scale_name_fields_that_there_are() -> None:
    for kind in crd.KINDS:
        fields = {path for path, _ in _nodes(_schema(kind))} | {".metadata.creationTimestamp"}
        for column in kind.columns:
            assert column.path.partition("[?")[0] in fields, column
        (version,) = crd.definition(kind)["spec"]["versions"]
        for path in version["subresources"].get("scale", {}).values():
            assert path in fields


# ---- settings are the broker's

_NOT_TUNED = {"cluster", "group", "broker", "data_dir", "zookeeper", "listen", "http_listen"}


def test_the_settings_are_those_of_the_table() -> None:
    """The order is the table's too: docs and the CRD list them alike."""
    assert list(BrokerTuning.model_fields) == list(SETTINGS)
    assert [name for name in BrokerSettings.model_fields if name not in _NOT_TUNED] == [*SETTINGS]
    assert all(row.restart for row in SETTINGS.values()), "docs and CRD promise it of each change"


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("zk:2181", True),
        ("10.0.0.1:2181,zk-1.zk.:2181/fmq", True),
        ("[::1]:2181", True),
        ("zk:2181,[fd00::10:1]:2181/fmq", True),
        ("[fd00::1:2181", False),
        ("[zk]:2181", False),
        ("fd00::1:2181", False),
    ],
)
def test_zookeepers_addresses_are_those_that_brokers_take(address: str, good: bool) -> None:
    assert bool(re.search(HOSTS, address)) is good
    if good:
        assert check_address(address) == address


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_bounds_of_a_setting_are_those_of_its_row(name: str) -> None:
    taken = BrokerSettings.model_json_schema()["properties"][name]
    shown = next(node for path, node in ALL if path == f"BrokerGroup.spec.settings.{_camel(name)}")
    row = SETTINGS[name]
    assert taken["default"] == row.default
    assert shown["description"] == row.text
    for field in (shown, taken):
        assert field.get("minimum") == row.low
        assert field.get("maximum") == row.high
        assert field.get("multipleOf") == row.multiple_of


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
