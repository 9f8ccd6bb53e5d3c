"""One fault on a cluster: traffic makes a history, the fault disturbs it, the checks judge it.

    with story(group, report, "master killed", FaultKind.KILL) as recorder:
        recorder.fired("g1-0")
        ...                      # inject the fault, look at what is reported meanwhile
        recorder.healed()        # every fault is undone, and no other follows

At the end of the block all groups must recover, the traffic must end, and the checks I1 to I13 must
find nothing in the history and the journals of all brokers. Times go into the report. With a
`chain` the traffic has senders and consumers of that ordered topic, too, over all its groups.
"""

import ast
import base64
import gzip
import io
import json
import tarfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Final

import pytest

from e2e.checks.verdict import Limits, Verdict, judge
from e2e.history.client_events import OrderedStored, Stored
from e2e.history.cluster_events import Down, Ending, Fault, FaultKind, Phase, PhaseName, Step
from e2e.history.events import Event
from e2e.history.history import from_line
from e2e.history.journals import Journal, load
from e2e.kind.chain import Chain
from e2e.kind.groups import SECURITY, Group, Json
from e2e.kind.tools import ROOT, apply, get, kubectl, until
from fmqcore.ids import Permission
from fmqdev.demo.verdict import Seen, longest_pause, outages

LIMITS: Final = Limits(acked_records=500, reader_changes=0, whole_ms=300_000.0)
"""`whole_ms` covers scheduling, starting and probing a pod before its broker is back."""

_PAST: Final[dict[str, list[Event]]] = {}
"""All events of a namespace's group: its journals hold the traffic of every story."""

_NAME: Final = "witness"
_PROGRAM: Final = "e2e.kind.witness"
_NUMBERS: Final = count(1)
_TIMEOUT_S: Final = 300.0

Report = dict[str, str]


class Story:
    """Records what the test does and when, while a pod records the effects."""

    def __init__(self, group: Group, kind: FaultKind, chain: Chain | None = None) -> None:
        self.groups: Sequence[Group] = (group,) if chain is None else chain.groups
        self.namespace = group.namespace
        self.chain = chain
        self._kind = kind
        self._events: list[Event] = []
        self._open: list[tuple[int, str]] = []
        self.started_ms = self.fired_ms = self.healed_ms = 0.0
        # Set at the end: what every broker served, look by look; when messages were acknowledged.
        self.seen: list[Seen] = []
        self.acked_ms: list[float] = []
        self.ordered: list[OrderedStored] = []

    # ---- what the test reports
    def fired(self, *on: str, detail: str = "") -> None:
        """Record that the fault is about to be done to these brokers."""
        self.fired_ms = self.fired_ms or _now_ms()
        self._add(Phase(_now_ms(), PhaseName.TROUBLE))
        for part in on:
            number = next(_NUMBERS)
            self._open.append((number, part))
            for step in (Step.SCHEDULED, Step.FIRED):
                self._add(Fault(_now_ms(), number, self._kind, part, step, detail))

    def down(self, broker: str, how: Ending) -> None:
        """Record that the broker's process has ended."""
        self._add(Down(_now_ms(), broker, broker.rpartition("-")[0], how))

    def healed(self) -> None:
        """Record the end of the fault: from now on the cluster must recover."""
        for number, part in self._open:
            self._add(Fault(_now_ms(), number, self._kind, part, Step.HEALED, ""))
        self._open.clear()
        self.healed_ms = _now_ms()
        self._add(Phase(self.healed_ms, PhaseName.HEALED))

    def whole(self) -> None:
        """Record that all groups are as declared again."""
        self._add(Phase(_now_ms(), PhaseName.WHOLE))

    def _add(self, event: Event) -> None:
        self._events.append(event)

    # ---- the pod
    def start(self) -> None:
        """Start the traffic; return when messages flow."""
        seed = next(_NUMBERS)
        apply(code(self.namespace))
        kubectl("delete", "pod", _NAME, "-n", self.namespace, "--ignore-not-found", "--now")
        apply(_pod(self.groups, seed, "" if self.chain is None else self.chain.name))
        from_ms = _now_ms()
        printed_ms = until(lambda: self._printed("started"), "messages flow", _TIMEOUT_S)
        self.started_ms = float(printed_ms)
        if not from_ms <= self.started_ms <= _now_ms():
            pytest.fail("the cluster has another clock than this machine: nothing can be judged")
        self._add(Phase(self.started_ms, PhaseName.CALM))

    def finish(self) -> tuple[list[Event], list[Seen], list[str]]:
        """End the traffic in order; return history, looks and what did not come in time."""
        self._exec("touch /tmp/finish")
        lacks: list[str] = json.loads(until(lambda: self._printed("over"), "traffic ends", 400))
        theirs = [from_line(x) for x in self._read("history.jsonl").decode().splitlines()]
        looks = json.loads(self._read("seen.json"))
        seen = [Seen(at, group, broker, Permission(p)) for at, group, broker, p in looks]
        kubectl("delete", "pod", _NAME, "-n", self.namespace, "--wait=false", "--now")
        setup, rest = theirs[0], [*theirs[1:], *self._events]
        return [setup, *sorted(rest, key=lambda event: event.at_ms)], seen, lacks

    def journals(self) -> list[Journal]:
        """Return the journal of every broker, at rest."""
        return [
            self._journal(group.name, pod["metadata"]["name"])
            for group in self.groups
            for pod in group.pods()
        ]

    def _journal(self, group: str, broker: str) -> Journal:
        packed = self._exec("tar -C /var/lib/fmq/journal -czf - . | base64", broker)
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as tar:
            files = [(m.name.rpartition("/")[2], tar.extractfile(m)) for m in tar if m.isfile()]
            named = [(n, f.read()) for n, f in files if f is not None]
        return load(broker, group, named)

    def _read(self, name: str) -> bytes:
        return gzip.decompress(base64.b64decode(self._exec(f"gzip -c /tmp/{name} | base64")))

    def _exec(self, script: str, pod: str = _NAME) -> str:
        return kubectl("exec", pod, "-n", self.namespace, "--", "sh", "-c", script)

    def _printed(self, word: str) -> str:
        """Return the rest of the pod's line that starts with the word; "" before it is printed."""
        pod = get("pod", _NAME, "-n", self.namespace)
        phase = pod["status"].get("phase", "Pending") if pod else "Pending"
        if phase == "Pending":
            return ""
        output = kubectl("logs", _NAME, "-n", self.namespace)
        assert phase == "Running", output
        lines = (line.partition(" ") for line in output.splitlines())
        return next((rest for first, _, rest in lines if first == word), "")


@contextmanager
def story(
    group: Group, report: Report, title: str, kind: FaultKind, chain: Chain | None = None
) -> Iterator[Story]:
    """See the module."""
    recorder = Story(group, kind, chain)
    recorder.start()
    try:
        yield recorder
    except (Exception, pytest.fail.Exception):
        with suppress(Exception):  # the next story must know what is in the journals
            _PAST.setdefault(group.namespace, []).extend(recorder.finish()[0])
        raise
    assert recorder.healed_ms, "a story ends with `healed`"
    for each in recorder.groups:
        each.wait_ready(_TIMEOUT_S)
    recorder.whole()
    if chain is not None:
        chain.wait_calm()
    events, seen, lacks = recorder.finish()
    recorder.seen = seen
    recorder.acked_ms = sorted({event.at_ms for event in events if isinstance(event, Stored)})
    recorder.ordered = [event for event in events if isinstance(event, OrderedStored)]
    until(lambda: all(map(_settled, recorder.groups)), "all brokers hold the same", 120)
    past = _PAST.setdefault(group.namespace, [])
    past += events
    limits = LIMITS if chain is None else replace(LIMITS, ordered_records=100)
    verdict = judge(past, recorder.journals(), limits)
    _add_times(report, title, recorder, events, verdict)
    assert lacks == []
    wrong = [*map(str, verdict.findings), *verdict.reasons]
    assert not wrong, f"{len(wrong)} findings, the first: " + "\n".join(wrong[:20])


def _settled(group: Group) -> bool:
    """Whether no batch is in flight any more, so that journals are read at rest."""
    brokers: Sequence[Json] = group.status.get("brokers") or ()
    return all(broker.get("lagBytes", 0) == 0 for broker in brokers)


def _add_times(
    report: Report,
    title: str,
    recorder: Story,
    events: Sequence[Event],
    verdict: Verdict,
) -> None:
    to_ms = max(event.at_ms for event in events if isinstance(event, Phase))
    away = outages(recorder.seen, recorder.fired_ms, to_ms)[0]
    stored = [event for event in events if isinstance(event, Stored)]
    acks = recorder.acked_ms
    whole_ms = next(e.at_ms for e in events if isinstance(e, Phase) and e.name is PhaseName.WHOLE)
    pause_ms = longest_pause(acks, recorder.fired_ms, max(whole_ms, acks[-1]))
    report[f"{title}: no broker served reads, writes"] = (
        f"{away.reads_ms / 1000:.1f}, {away.writes_ms / 1000:.1f} s"
    )
    report[f"{title}: longest without acks"] = f"{pause_ms / 1000:.1f} s"
    report[f"{title}: over → whole"] = f"{(whole_ms - recorder.healed_ms) / 1000:.1f} s"
    report[f"{title}: acknowledged, findings"] = f"{len(stored)}, {len(verdict.findings)}"
    lines = 4
    if recorder.chain is not None:
        lines += 2
        report[f"{title}: longest without ordered acks"] = (
            f"{longest_pause([e.at_ms for e in recorder.ordered], recorder.fired_ms, to_ms):.0f} ms"
        )
        report[f"{title}: ordered, pauses of switches"] = (
            f"{len(recorder.ordered)}, {', '.join(switches(recorder.ordered)) or 'none'}"
        )
    for line in (f"{name:58} {value:>16}" for name, value in list(report.items())[-lines:]):
        print(line, flush=True)


def switches(stored: Iterable[OrderedStored]) -> list[str]:
    """Return each change of segment with the time between the acks before and after, in words."""
    acked = sorted(stored, key=lambda event: (event.segment, event.at_ms))
    return [
        f"{one.group}>{two.group} {two.at_ms - one.at_ms:.0f} ms"
        for one, two in pairwise(acked)
        if one.segment != two.segment
    ]


def _now_ms() -> float:
    """Return the clock that all processes on this machine share, also those in containers."""
    return time.monotonic() * 1000


def code(namespace: str) -> Json:
    """Return a ConfigMap with the pod's program and every module of `e2e` that it imports."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path in _imported_by(_PROGRAM):
            file.write(path, path.relative_to(ROOT))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _NAME, "namespace": namespace},
        "binaryData": {"e2e.zip": base64.b64encode(packed.getvalue()).decode()},
    }


def _imported_by(program: str) -> list[Path]:
    """Return the files of a module and of what it imports from `e2e`, directly or not."""
    files: dict[str, Path] = {}
    pending = [program]
    while pending:
        name = pending.pop()
        file = _file_of(name)
        if name in files or file is None:
            continue
        files[name] = file
        pending.append(name.rpartition(".")[0])  # its package
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                pending += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = str(node.module)
                pending += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return sorted(files.values())


def _file_of(module: str) -> Path | None:
    """Return the file of a module of `e2e`; None for any other name."""
    if module.partition(".")[0] != "e2e":
        return None
    path = ROOT / module.replace(".", "/")
    return next((f for f in (path / "__init__.py", path.with_suffix(".py")) if f.is_file()), None)


def _pod(groups: Sequence[Group], seed: int, ordered: str) -> Json:
    """The pod runs on the control plane, which no test hurts."""
    group, names = groups[0], ",".join(group.name for group in groups)
    brokers = ",".join(broker for each in groups for broker in each.brokers)
    zookeeper = group.spec["zookeeper"]["connect"]
    arguments = [names, group.namespace, brokers, zookeeper, str(seed), ordered]
    container = {
        "name": "main",
        "image": group.image,
        "command": ["python", "-m", _PROGRAM, *arguments],
        "env": [{"name": "PYTHONPATH", "value": "/e2e/e2e.zip"}],
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "code", "mountPath": "/e2e"}],
    }
    role = "node-role.kubernetes.io/control-plane"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": group.namespace},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {role: ""},
            "tolerations": [{"key": role, "operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": "code", "configMap": {"name": _NAME}}],
        },
    }
