"""What kopf has to say, and which of it is noise."""

import logging

import pytest
from kopf._cogs.structs.references import Selector
from kopf._core.reactor import observation

from fmqoperator.shell.handlers import kopf_settings

SPARK = Selector("sparkoperator.k8s.io", "v1beta2", "sparkapplications")
TOPICS = Selector("fmq.io", "v1alpha1", "topics")


@pytest.mark.parametrize(
    ("lacking", "lines"), [([], 0), ([SPARK], 0), ([TOPICS], 1), ([SPARK, TOPICS], 1)]
)
def test_a_cluster_without_spark_is_no_news(
    lacking: list[Selector], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """By the function of kopf that says it: if it says it in another way, this is seen here."""
    kopf_settings()
    with caplog.at_level(logging.WARNING):
        observation._disable_mismatched_selectors(resources=set(), selectors=frozenset(lacking))
    assert len(caplog.records) == lines
    assert all("topics" in record.getMessage() for record in caplog.records)


def test_other_warnings_pass(caplog: pytest.LogCaptureFixture) -> None:
    kopf_settings()
    with caplog.at_level(logging.WARNING):
        observation.logger.warning("Not enough permissions to list namespaces.")
    assert len(caplog.records) == 1
