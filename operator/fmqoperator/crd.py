"""The CustomResourceDefinitions, generated from `resources`: one typed source. Pure but for `main`.

    python -m fmqoperator.crd            print them
    python -m fmqoperator.crd --write    write them where they are kept
    python -m fmqoperator.crd --check    1 if what is kept is not what would be written

They are kept twice with the same bytes: `manifests/crds/` for kubectl, `charts/fmq/files/crds/`
for the chart. Both have `helm.sh/resource-policy: keep`: an uninstall leaves them, and with them
every group.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from fmqoperator.api.base import GROUP, VERSION, Json, Part
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.job import BrokerJob
from fmqoperator.api.schema import structural
from fmqoperator.api.topic import Topic

MAX_BYTES: Final = 200_000

_ROOT: Final = Path(__file__).resolve().parents[2]
KEPT_IN: Final = ("manifests/crds", "charts/fmq/files/crds")
_BESIDE: Final = {"kustomization.yaml", "admission.yaml"}


class Column(NamedTuple):
    """What `kubectl get` shows."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0  # over 0: only with -o wide


class Kind(NamedTuple):
    """One kind of resource."""

    model: type[Part]
    plural: str
    short: tuple[str, ...]
    columns: tuple[Column, ...]
    scale: bool = False


_REASON: Final = '.status.conditions[?(@.type=="{}")].reason'
_AGE: Final = Column(
    "AGE", ".metadata.creationTimestamp", "Time since the resource was created.", "date"
)

KINDS: Final = (
    Kind(
        BrokerGroup,
        "brokergroups",
        ("bg",),
        (
            Column("MASTER", ".status.master", "The group's master."),
            Column("ACCESS", ".status.access", "What the group serves now."),
            Column("READY", ".status.ready", "Ready and declared brokers."),
            Column("PHASE", ".status.phase", "The group's state in one word."),
            Column("EPOCH", ".status.epoch", "The group's epoch.", "integer"),
            Column("LAG", ".status.lag", "Largest lag of a slave behind the master."),
            _AGE,
            Column("READER", ".status.reader", "The broker that serves the reads.", priority=1),
            Column(
                "SEEN",
                ".status.observedAt",
                "When the operator last observed the group.",
                "date",
                1,
            ),
            Column("MESSAGE", ".status.message", "The phase in a sentence.", priority=1),
        ),
        scale=True,
    ),
    Kind(
        Topic,
        "topics",
        (),
        (
            Column("ID", ".status.id", "The topic's number.", "integer"),
            Column("QUEUES", ".status.queues", "Number of queues.", "integer"),
            Column(
                "READY", '.status.conditions[?(@.type=="Ready")].status', "Whether it is usable."
            ),
            Column("REASON", _REASON.format("Ready"), "Reason of READY, in one word."),
            _AGE,
            Column(
                "SENDS",
                ".status.ordered.sendingGroup",
                "Group that takes ordered sends.",
                priority=1,
            ),
            Column("MESSAGE", ".status.message", "What the topic waits for.", priority=1),
        ),
    ),
    Kind(
        BrokerJob,
        "brokerjobs",
        ("bj",),
        (
            Column("TYPE", ".spec.type", "What the job does."),
            Column("GROUP", ".spec.group", "The group whose journals it reads."),
            Column("PHASE", ".status.phase", "Whether the job ran."),
            Column("VERDICT", ".status.verdict", "The verdict on the data."),
            Column("EXIT", ".status.exitCode", "The worst exit code.", "integer"),
            Column("REASON", _REASON.format("Consistent"), "Reason of VERDICT, in one word."),
            _AGE,
            Column("MESSAGE", ".status.message", "PHASE or VERDICT in one sentence.", priority=1),
        ),
    ),
)


def definition(kind: Kind) -> Json:
    """One CustomResourceDefinition."""
    singular = kind.model.__name__.lower()
    names = {
        "kind": kind.model.__name__,
        "listKind": f"{kind.model.__name__}List",
        "plural": kind.plural,
        "singular": singular,
        "categories": ["fmq"],
    }
    if kind.short:
        names["shortNames"] = list(kind.short)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{GROUP}",
            "annotations": {"helm.sh/resource-policy": "keep"},
            "labels": {"app.kubernetes.io/part-of": "fmq"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> Json:
    subresources: Json = {"status": {}}
    if kind.scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(kind.model)},
        "subresources": subresources,
        "additionalPrinterColumns": [_column(c) for c in kind.columns],
    }


def _schema(model: type[Part]) -> Json:
    """The model's schema with the fields that every object has left to Kubernetes."""
    schema = structural(model)
    properties = schema["properties"]
    properties["apiVersion"] = {
        "type": "string",
        "description": "Version of the resource's schema: fmq.io/v1alpha1.",
    }
    properties["kind"] = {"type": "string", "description": f"{model.__name__}."}
    properties["metadata"] = {"type": "object"}
    properties["status"] = without_defaults(properties["status"])
    schema["required"] = ["spec"]
    return schema


def without_defaults(node: Json) -> Json:
    """A status is written whole by the operator: nothing in it has a default or must be there.

    (A list's keys must: they name its elements.)
    """
    out = {k: v for k, v in node.items() if k not in ("default", "required")}
    if "properties" in out:
        out["properties"] = {k: without_defaults(v) for k, v in out["properties"].items()}
    if "items" in out:
        out["items"] = without_defaults(out["items"])
        if keys := out.get("x-kubernetes-list-map-keys"):
            out["items"]["required"] = keys
    return out


def _column(column: Column) -> Json:
    out: Json = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    if column.priority:
        out["priority"] = column.priority
    return out


def files() -> dict[str, str]:
    """The files by name, as they are kept."""
    return {
        f"{kind.plural}.yaml": "# Generated: python -m fmqoperator.crd --write\n"
        + yaml.safe_dump(definition(kind), sort_keys=False, width=96, allow_unicode=True)
        for kind in KINDS
    }


def differing(root: Path) -> list[str]:
    """What is kept below `root` and is not as it would be written."""
    wanted = files()
    found = []
    for folder in KEPT_IN:
        for name, text in wanted.items():
            path = root / folder / name
            if not path.exists() or path.read_text() != text:
                found.append(f"{folder}/{name} does not match the models (fmqoperator.crd --write)")
        there = {p.name for p in (root / folder).glob("*.yaml")} - _BESIDE
        extra = there - wanted.keys()
        found += [f"{folder}/{name} is of no kind of resource" for name in sorted(extra)]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, write or check."""
    parser = argparse.ArgumentParser(prog="python -m fmqoperator.crd", description=main.__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", action="store_true", help="write them where they are kept")
    what.add_argument("--check", action="store_true", help="1 if what is kept differs")
    given = parser.parse_args(arguments)
    if given.check:
        found = differing(_ROOT)
        for line in found:
            sys.stderr.write(f"{line}: python -m fmqoperator.crd --write\n")
        return 1 if found else 0
    if given.write:
        for folder in KEPT_IN:
            (_ROOT / folder).mkdir(parents=True, exist_ok=True)
            for name, text in files().items():
                (_ROOT / folder / name).write_text(text)
        return 0
    sys.stdout.write("---\n".join(files().values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
