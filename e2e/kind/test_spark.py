"""BrokerJobs on Spark, beside the volumes and from live brokers: Kubeflow's operator runs them.

`FMQ_SPARK_OPERATOR_UP` names the program that puts that operator into the cluster that KUBECONFIG
names (of kind: `KIND_CLUSTER_NAME`); `true`, if it is there. The tests build on one another.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from e2e.kind import hurting
from e2e.kind.conftest import CLUSTER, KEEP
from e2e.kind.groups import Group, Json
from e2e.kind.jobs import RECORDS, begin, end, fill, job, plant_damage, status
from e2e.kind.tools import Failed, apply, build_image, get, kubectl, load_image, run, until

UP = os.environ.get("FMQ_SPARK_OPERATOR_UP", "")

pytestmark = [
    pytest.mark.kind,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not UP, reason="no Spark operator: FMQ_SPARK_OPERATOR_UP names no program that brings one"
    ),
]

SPACE = "default"
"""The namespace that Kubeflow's Spark operator watches by default."""
APPLICATIONS = "sparkapplications.sparkoperator.k8s.io"
ENFORCED = "pod-security.kubernetes.io/enforce"

SLOWLY = 600_000
"""Bytes a second: a check of the data of `fill` takes forty seconds."""

Report = dict[str, str]


@pytest.fixture(scope="module")
def image(installed: str) -> str:
    """The image of the jobs; FMQ's operator was there before Spark's."""
    run("env", f"KIND_CLUSTER_NAME={CLUSTER}", UP, patience_s=1500)
    until(lambda: get("crd", APPLICATIONS), "the cluster knows SparkApplications")
    tag = build_image("spark")
    load_image(tag, CLUSTER)
    return tag


@pytest.fixture(scope="module")
def group(installed: str, images: dict[str, str], image: str) -> Iterator[Group]:
    """A master and a slave with their volumes on one node, and messages in them."""
    made = Group("g1", SPACE, installed, images["broker"])
    made.spec["settings"] = {"segmentBytes": 4 << 20}
    if found := hurting.workers():
        made.spec["scheduling"] = {"nodeSelector": {"kubernetes.io/hostname": found[0]}}
    made.make()
    try:
        kubectl("apply", "-n", SPACE, "-f", "manifests/spark/account.yaml")
        made.wait_ready()
        fill(made)
        yield made
    finally:
        if not KEEP:
            kubectl("delete", "brokerjobs,brokergroups,pvc", "--all", "-n", SPACE)
            with suppress(Failed):
                kubectl("label", "namespace", SPACE, f"{ENFORCED}-")


def test_a_check(group: Group, image: str, report: Report) -> None:
    """Executors read all of both replicas, and the group has no other brokers for it."""
    start_s = time.monotonic()
    status = on_spark(group, "well", image, type="check", level="deep")
    report["a deep check by Spark"] = f"{time.monotonic() - start_s:.1f} s"
    ended = (status["phase"], status["verdict"], status["exitCode"])
    assert ended == ("Succeeded", "Clean", 0), status
    (name,) = status["children"]
    application = get(APPLICATIONS, name, "-n", SPACE)["status"]
    assert application["applicationState"]["state"] == "COMPLETED"
    assert application["executorState"], "executors did it"
    assert "verdict (deep): clean; 2 replica(s)" in status["message"]
    output = printed(name)
    assert output["records"] >= 2 * RECORDS
    assert output["bytes"]["checked"] > 0
    assert [output["bytes"].get(state, 0) for state in ("damaged", "unread")] == [0, 0]
    assert {broker["broker"] for broker in group.status["brokers"]} == {"g1-0", "g1-1"}
    assert group.row().split()[:5] == ["g1", "g1-0", "FULL", "2/2", "Running"]
    until(lambda: group.condition("IndexConsistent").get("status") == "True", "it is reported")


def test_an_executor_that_is_killed(group: Group, image: str) -> None:
    """In mid-work: another executor reads its segments again, and nothing is missing."""
    of: Json = {"type": "check", "level": "deep", "rateBytesPerS": SLOWLY}
    begin(group, "bereft", **asked(image, **of))
    (victim, _) = until(lambda: executors(group, "bereft", 2), "two executors work", 240)
    time.sleep(5)
    hurting.signal_to(SPACE, victim, "KILL")
    found = end(group, "bereft", 600)
    assert (found["phase"], found["verdict"], found["exitCode"]) == ("Succeeded", "Clean", 0), found
    output = printed(found["children"][0])
    assert output["records"] >= 2 * RECORDS
    assert [output["bytes"].get(state, 0) for state in ("damaged", "unread")] == [0, 0]


def test_a_driver_that_is_killed(group: Group, image: str) -> None:
    """That is no verdict, and the status reports it; its executors go with it."""
    of: Json = {"type": "check", "level": "deep", "rateBytesPerS": SLOWLY}
    begin(group, "beheaded", **asked(image, **of))
    until(lambda: executors(group, "beheaded", 2), "two executors work", 240)
    time.sleep(5)  # the executors know the driver by then; otherwise they search for minutes
    hurting.signal_to(SPACE, f"{status(group, 'beheaded')['children'][0]}-driver", "KILL")
    found = end(group, "beheaded", 300)
    assert found["phase"] == "Failed", found
    assert (found["verdict"], found["exitCode"]) == ("Unknown", 137)
    until(lambda: not executors(group, "beheaded", 1), "no executor works on", 120)


def test_damage_in_one_replica(group: Group, image: str) -> None:
    """It is found where it is, and nowhere else; the status has the verdict and the reason."""
    file = plant_damage(group, "g1-1").rpartition("/")[2]
    status = on_spark(group, "hurt", image, type="check", level="deep")
    ended = (status["phase"], status["verdict"], status["exitCode"])
    assert ended == ("Succeeded", "Inconsistent", 2), status
    assert "verdict (deep): inconsistent; 2 replica(s)" in status["message"]
    assert f"g1-1/journal/{file}" in status["message"]
    output = printed(status["children"][0])
    hurt = [row for row in output["coverage"] if row["state"] in ("damaged", "unread")]
    assert {(row["replica"], row["file"]) for row in hurt} == {("/var/lib/fmq/g1-1/journal", file)}
    assert any(row["begin"] <= 1_000_000 < row["end"] for row in hurt)
    until(lambda: group.condition("IndexConsistent").get("status") == "False", "it is reported")


def test_an_archive_of_live_brokers(group: Group, image: str, report: Report) -> None:
    """Each message once, though the slave, which is asked first, has damage; then none again."""
    claim: Json = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "lake", "namespace": SPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    apply(claim)
    archive = {"topics": ["filling"], "claim": "lake", "live": True}
    for name, rows in (("first", RECORDS), ("again", 0)):
        start_s = time.monotonic()
        status = on_spark(group, name, image, type="archive", archive=archive)
        report[f"an archive by Spark: {rows} messages"] = f"{time.monotonic() - start_s:.1f} s"
        assert (status["phase"], status["verdict"]) == ("Succeeded", "Clean"), status
        assert printed(status["children"][0])["rows"] == rows
        assert f"{rows:,} records in " in status["message"]


_LOSE_INDEX = """
import glob, os
path = sorted(glob.glob("/var/lib/fmq/**/*.index", recursive=True))[0]
os.remove(path)
print(path)
"""


def test_rebuild_index_job_while_the_group_sleeps(group: Group, image: str, report: Report) -> None:
    """While the group is hibernated; `auto` is Spark where it is installed with a known image."""
    command = ("exec", "g1-0", "-n", SPACE, "--", "python", "-c", _LOSE_INDEX)
    index = kubectl(*command).strip().rpartition("/")[2]
    group.spec["hibernated"] = True
    group.apply()
    try:
        until(lambda: group.status.get("phase") == "Hibernated", "it sleeps", 120)
        start_s = time.monotonic()
        of = {"type": "rebuild-index", "brokers": ["g1-0"]}
        status = on_spark(group, "index", image, **of, engine="auto")
        report["an index rebuilt by Spark"] = f"{time.monotonic() - start_s:.1f} s"
        assert (status["phase"], status["verdict"]) == ("Succeeded", "Clean"), status
        assert get(APPLICATIONS, status["children"][0], "-n", SPACE), "it was Spark"
        assert f"g1-0/journal/{index}: rebuilt" in status["message"]
    finally:
        group.spec["hibernated"] = False
        group.apply()
        group.wait_ready(240)


# ---- what they look at


def on_spark(group: Group, name: str, image: str, **spec: object) -> Json:
    """Run a BrokerJob with two executors to its end; return its status."""
    return job(group, name, patience_s=600, **asked(image, **spec))


def asked(image: str, **spec: object) -> Json:
    """Return a BrokerJob on Spark with two executors."""
    requests = {"cpu": "100m", "memory": "1Gi"}
    of_all: Json = {"engine": "spark", "executors": 2, "image": image}
    return of_all | {"resources": {"requests": requests}} | spec


def executors(group: Group, name: str, many: int) -> list[str]:
    """Return the names of running executors, if there are that many."""
    children = status(group, name).get("children")
    if not children:
        return []
    labels = f"spark-role=executor,sparkoperator.k8s.io/app-name={children[0]}"
    found = json.loads(kubectl("get", "pods", "-n", SPACE, "-l", labels, "-o", "json"))["items"]
    names = [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Running"]
    return names if len(names) >= many else []


def printed(application: str) -> Json:
    """Return the job's lines in its driver's log, without Spark's."""
    log = kubectl("logs", f"{application}-driver", "-n", SPACE)
    found = re.search(r"^\{$.*?^\}$", log, re.MULTILINE | re.DOTALL)
    assert found, log
    output: Json = json.loads(found[0])
    return output
