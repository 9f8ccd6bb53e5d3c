"""kopf's messages, and which of them are noise."""

import asyncio
import json
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from kopf._cogs.clients import api, errors
from kopf._cogs.structs.references import Resource, Selector
from kopf._core.reactor import observation

from fmqcore.ids import BrokerId
from fmqoperator.core.children.group import children
from fmqoperator.shell import handlers
from fmqoperator.shell.handlers import Patience, kopf_settings
from fmqoperator.tests.job_kit import SPARKY, job, made, seen
from fmqoperator.tests.samples import DEFAULTS
from fmqoperator.tests.samples import group as a_group

SPARK = Selector("sparkoperator.k8s.io", "v1beta2", "sparkapplications")
TOPICS = Selector("fmq.io", "v1alpha1", "topics")


@pytest.mark.parametrize(
    ("lacking", "lines"), [([], 0), ([SPARK], 0), ([TOPICS], 1), ([SPARK, TOPICS], 1)]
)
def test_a_cluster_without_spark_is_no_news(
    lacking: list[Selector], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Through kopf's own function that logs it, so that a change in kopf shows here."""
    kopf_settings(Patience())
    with caplog.at_level(logging.WARNING):
        observation._disable_mismatched_selectors(resources=set(), selectors=frozenset(lacking))
    assert len(caplog.records) == lines
    assert all("topics" in record.getMessage() for record in caplog.records)


def test_other_warnings_pass(caplog: pytest.LogCaptureFixture) -> None:
    kopf_settings(Patience())
    with caplog.at_level(logging.WARNING):
        observation.logger.warning("Not enough permissions to list namespaces.")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("group", "version", "plural", "selector"),
    [
        ("", "v1", "pods", "app.kubernetes.io/part-of=fmq"),
        ("", "v1", "configmaps", "fmq.io/group"),
        ("", "v1", "persistentvolumeclaims", "fmq.io/group"),
        ("apps", "v1", "statefulsets", "fmq.io/group"),
        ("batch", "v1", "jobs", "fmq.io/job"),
        ("sparkoperator.k8s.io", "v1beta2", "sparkapplications", "fmq.io/job"),
        ("", "v1", "nodes", ""),
        ("fmq.io", "v1alpha1", "brokergroups", ""),
    ],
)
def test_foreign_objects_are_not_requested(
    group: str, version: str, plural: str, selector: str
) -> None:
    """A cluster has thousands of foreign pods and ConfigMaps: they would all arrive, and stay."""
    settings = kopf_settings(Patience())
    kind = Resource(group=group, version=version, plural=plural, kind="K", namespaced=True)
    assert settings.watching.label_selectors.collect(kind) == ([selector] if selector else [])


def test_created_objects_have_the_labels_of_the_watches() -> None:
    for child in children(a_group(), DEFAULTS, master=BrokerId(""), reader=BrokerId("")):
        assert "fmq.io/group" in child["metadata"]["labels"]
        if child["kind"] == "StatefulSet":
            template = child["spec"]["template"]["metadata"]["labels"]
            (claim,) = child["spec"]["volumeClaimTemplates"]
            assert "fmq.io/group" in claim["metadata"]["labels"]
            assert template["app.kubernetes.io/part-of"] == "fmq"
    for nodes, defaults in (("n0", "n0"), DEFAULTS), (("n0", "n0"), SPARKY):
        spark = defaults is SPARKY
        (job_child,) = made(seen(job(), nodes, spark=spark, defaults=defaults))
        assert "fmq.io/job" in job_child["metadata"]["labels"]
        text = json.dumps(job_child["spec"])
        assert text.count('"app.kubernetes.io/part-of": "fmq"') == (2 if spark else 1), "its pods"


class Session:
    """A session with an API server that forbids that many tries, and then answers."""

    status = 200
    closed = False

    def __init__(self, forbids: int) -> None:
        self.left = forbids

    async def request(self, **_: Any) -> "Session":
        self.left -= 1
        if self.left >= 0:
            raise errors.APIForbiddenError("you may not", status=403, headers={})
        return self


async def test_forbidden_watch_resumes_once_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through kopf's own requests: nothing ends, however long a permission is missing."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    settings, log = kopf_settings(Patience()), logging.getLogger("kopf")
    for _ in range(2):  # every request starts afresh
        waits.clear()
        context: Any = SimpleNamespace(session=Session(200), server="http://api")
        await api.request("get", "/pods", settings=settings, logger=log, context=context)
        assert len(waits) == 200
        assert waits[:3] == [1, 1, 2]
        assert max(waits) == 60


async def test_time_without_an_api_answer_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also through kopf's own requests: a caller that is answered or cancelled asks no more."""
    now_s, blind, patience = 100.0, list[float](), Patience()

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        blind.append(patience.blind_s())
        if now_s > 130:
            raise asyncio.CancelledError

    monkeypatch.setattr("asyncio.sleep", sleep)
    monkeypatch.setattr(handlers, "time", SimpleNamespace(monotonic=lambda: now_s))
    settings, log = kopf_settings(patience), logging.getLogger("kopf")
    for forbids, expected in ((0, []), (3, [0, 1, 3]), (200, [0, 1, 3, 6, 11, 19])):
        blind.clear()
        context: Any = SimpleNamespace(session=Session(forbids), server="http://api")
        with suppress(asyncio.CancelledError):
            await api.request("get", "/pods", settings=settings, logger=log, context=context)
        assert blind[: len(expected)] == expected
        assert patience.blind_s() == 0
    asks = [iter(patience), iter(patience)]
    for ask in asks:
        next(ask)
        next(ask)
        now_s += 7
    assert patience.blind_s() == 14, "the one that has asked for longest"
    asks.clear()
    del ask
    assert patience.blind_s() == 0
