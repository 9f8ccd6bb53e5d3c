"""Writes `docs/reference/settings.md`: every setting of broker, client, operator and chart.

    python tools/make_settings.py [--check]

Names, defaults and bounds come from the code and the chart, so that the page cannot differ from
them; `--check` (in `make check`) fails if it does, or if the sources read an `FMQ_` variable that
the page does not have.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic.fields import FieldInfo

from fmqbroker.runtime.settings import BrokerSettings
from fmqclient.settings import ConsumerSettings, ProducerSettings
from fmqcore.settings_spec import SETTINGS, SettingSpec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for a run as a file

from tools.generated_page import update

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "settings.md"
SOURCES: Final = (
    "broker/fmqclient",
    "broker/fmqcli",
    "broker/fmqdev",
    "broker/fmqbroker",
    "operator/fmqoperator",
    "spark",
)

UNITS: Final = (
    ("_bytes_per_s", "bytes/s"),
    ("_bytes", "bytes"),
    ("_records", "records"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("prefetch", "messages"),
)
"""The end of a name says the unit."""

CONNECT: Final = (
    ("`url`", "`fmq://127.0.0.1:9876`", "", "Any broker, or several: `fmq://host:port,host:port`."),
    ("`timeout_s`", "10", "s", "Until the first answer; then `Unavailable`."),
    ("`name`", "empty", "", "For people, in a broker's lists."),
)

COMMANDS: Final = (
    ("`FMQ_BROKERS`", "`fmq://127.0.0.1:9876`", "As `--brokers`: any broker, or several."),
    ("`FMQ_ZOOKEEPER`", "none", "As `--zookeeper` of `fmq cluster`, `failover`, `broker`."),
    ("`FMQ_CLUSTER`", "none", "As `--cluster` of these; a file that contradicts it is refused."),
    ("`FMQ_DEBUG`", "off", "`1`: show where an error came from, as `--debug`."),
    ("`FMQ_LAST_WORDS`", "none", "A file to which `fmq job` also writes why it ended."),
    ("`XDG_STATE_HOME`", "`~/.local/state`", "`fmq dev` and `fmq demo` keep theirs below `fmq/`."),
    ("`JAVA_HOME`", "the Java on the path", "For ZooKeeper on this machine, and for Spark."),
)

OPERATOR: Final = (
    ("`FMQ_WATCH_NAMESPACES`", "all", "`operator.watchNamespaces`", "Where resources may be."),
    ("`FMQ_BROKER_IMAGE`", "`fmq/broker:0.1.0`", "`image.broker`", "Of groups that name none."),
    ("`FMQ_SPARK_IMAGE`", "none", "`image.spark`", "Of jobs on Spark's operator."),
    ("`FMQ_SPARK_ACCOUNT`", "`fmq-spark`", "`operator.sparkServiceAccount`", "Of Spark's drivers."),
    ("`FMQ_NAMESPACE`", "`fmq-system`", "the release's", "The operator's own namespace."),
    ("`FMQ_CLUSTER_DOMAIN`", "none", "`operator.clusterDomain`", "Behind `.svc` in names."),
    ("`FMQ_PLANNED_MOVES`", "`true`", "`operator.plannedMoves`", "Whether masterships are moved."),
    (
        "`FMQ_UPDATES_AT_ONCE`",
        "1",
        "`operator.updatesAtOnce`",
        "Groups upgraded at a time; 0: all.",
    ),
    ("`FMQ_LOG_LEVEL`", "`info`", "`operator.logLevel`", "Least severe events that are logged."),
    ("`FMQ_POD_NAME`", "host and process id", "the pod's", "Its name in the election's Lease."),
    ("`FMQ_LEASE`", "`fmq-operator`", "the release's", "The Lease of the election."),
    ("`FMQ_LISTEN`", "`0.0.0.0:8080`", "fixed", "Where health and metrics are served."),
)

HEAD: Final = """# Settings

Every setting with its default, unit and meaning. Generated: `python tools/make_settings.py`.
Exit statuses and options of commands: [client](errors.md), and `--help` of each.

"""


def main(arguments: list[str]) -> int:
    """See the module; with --check, 1 if the page is not as it would be written."""
    unlisted = sorted(read_variables() - {row[0].strip("`") for row in (*COMMANDS, *OPERATOR)})
    if unlisted:
        print(f"tools/make_settings.py has no {', '.join(unlisted)}", file=sys.stderr)
        return 1
    return update(PAGE, page(), __file__, arguments)


def page() -> str:
    """Return the whole page."""
    sections = (
        ("A broker", BROKER_TEXT, table(BROKER_COLUMNS, broker_rows())),
        ("A client", "`fmqclient.connect(...)`, `fmqclient.sync.connect(...)`:",
         table(PLAIN_COLUMNS, CONNECT)),
        ("A producer", "`client.producer(...)`:",
         table(PLAIN_COLUMNS, client_rows(ProducerSettings))),
        ("A consumer", "`client.consumer(topic, group=, ...)`:",
         table(PLAIN_COLUMNS, client_rows(ConsumerSettings))),
        ("The command's environment", "Options win over the environment.",
         table(("variable", "default", "meaning"), COMMANDS)),
        ("The operator's environment", "The chart sets it from its values.",
         table(("variable", "default", "value of the chart", "meaning"), OPERATOR)),
        ("The chart", "Values of `charts/fmq`. The fields of a BrokerGroup, Topic and BrokerJob: "
         "`kubectl explain brokergroup.spec`.",
         table(("value", "default", "may be", "meaning"), chart_rows())),
    )  # fmt: skip
    parts = [f"## {title}\n\n{text}\n\n{rows}" for title, text, rows in sections]
    return HEAD + "\n\n".join(parts) + "\n"


BROKER_TEXT: Final = (
    "`fmq broker run` takes them from its options, `--set NAME=VALUE` and `--config FILE` (in this "
    "order), a BrokerGroup from `spec.settings`, where `heartbeat_ms` is `heartbeatMs`. A change "
    "counts from the broker's next start. Members and policy of a group are not settings: "
    "`fmq cluster apply`."
)
BROKER_COLUMNS: Final = ("setting", "default", "may be", "unit", "meaning")
PLAIN_COLUMNS: Final = ("setting", "default", "unit", "meaning")


def table(columns: tuple[str, ...], rows: Any) -> str:
    """Return a table in Markdown."""
    lines = [columns, ("---",) * len(columns), *(tuple(f"{c}" for c in row) for row in rows)]
    return "\n".join(f"| {' | '.join(escaped(cell) for cell in line)} |" for line in lines)


def escaped(cell: str) -> str:
    """Return the text with bars escaped: a bar would end the cell."""
    return cell.replace("|", "\\|")


def broker_rows() -> Iterator[tuple[str, ...]]:
    """All settings of a broker: its names and addresses, then the rows of the table."""
    fields: Mapping[str, FieldInfo] = BrokerSettings.model_fields
    for name, info in fields.items():
        if (row := SETTINGS.get(name)) is not None:
            yield f"`{name}`", written(name, row.default), bounds(row), row.unit, row.text
            continue
        assert info.description, f"{name} has no description"
        default = "required" if info.is_required() else written(name, info.default)
        yield f"`{name}`", default, "", "", info.description


def client_rows(settings: Any) -> Iterator[tuple[str, ...]]:
    """The fields of a client's settings that a program gives."""
    for field in dataclasses.fields(settings):
        if field.name == "client_name":
            continue  # it is `connect`'s
        required = field.default is dataclasses.MISSING
        default = "required" if required else written(field.name, field.default)
        yield f"`{field.name}`", default, unit(field.name), field.metadata["meaning"]


def chart_rows() -> Iterator[tuple[str, ...]]:
    """The leaves of the chart's schema, with what `values.yaml` says."""
    chart = ROOT / "charts" / "fmq"
    schema = json.loads((chart / "values.schema.json").read_text())
    values = yaml.safe_load((chart / "values.yaml").read_text())
    for path, leaf in leaves(schema):
        default: Any = values
        for part in path:
            default = default.get(part) if isinstance(default, dict) else None
        if default is not None:
            yield f"`{'.'.join(path)}`", plain(default), allowed(leaf), leaf["description"]


def leaves(
    schema: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Properties without properties of their own, in order."""
    for name, found in schema.get("properties", {}).items():
        if found.get("properties"):
            yield from leaves(found, (*path, name))
        else:
            yield (*path, name), found


def allowed(leaf: Mapping[str, Any]) -> str:
    """Return the values that the schema allows."""
    if "enum" in leaf:
        return ", ".join(f"`{value}`" for value in leaf["enum"])
    if "minimum" in leaf or "maximum" in leaf:
        return f"{leaf.get('minimum', '')} to {leaf.get('maximum', '')}".strip()
    return str(leaf.get("type", ""))


def unit(name: str) -> str:
    """Return the unit that the end of the name states."""
    return next((unit for end, unit in UNITS if name.endswith(end)), "")


def written(name: str, value: Any) -> str:
    """Return a default as a person writes it; a large one also in a larger unit."""
    if value == "" or isinstance(value, bool | str):
        return plain(value)
    known = unit(name)
    readable = {"bytes": size, "bytes/s": size, "ms": duration}.get(known, lambda _: "")(value)
    return f"{value:g}" if isinstance(value, float) else f"{value}{readable}"


def size(value: int) -> str:
    """Return a size in its largest whole unit: ` (128 MiB)`; "" if there is none."""
    for step, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= step and value % step == 0:
            return f" ({value // step} {name})"
    return ""


def duration(value: float) -> str:
    """Return a duration in its largest whole unit: ` (7 days)`; "" if there is none."""
    for step, name in ((86_400_000, "days"), (60_000, "min"), (1000, "s")):
        if value >= step and value % step == 0:
            return f" ({value / step:g} {name})"
    return ""


def plain(value: Any) -> str:
    """Return a default that is neither a size nor a duration."""
    if value in ("", [], {}):
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{json.dumps(value) if isinstance(value, dict | list) else value}`"


def bounds(row: SettingSpec) -> str:
    """Return the bounds that the setting's row allows."""
    text = f"from {row.low}" if row.high is None else f"{row.low} to {row.high}"
    return f"{text}, a multiple of {row.multiple_of}" if row.multiple_of else text


def read_variables() -> set[str]:
    """The `FMQ_` variables that the sources name."""
    found: set[str] = set()
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            if "tests" not in path.parts:
                found |= set(re.findall(r"\"(FMQ_[A-Z_]+)\"", path.read_text()))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
