"""Another image for running brokers: a good one, and one that cannot be pulled."""

import pytest

from e2e.history.cluster_events import FaultKind
from e2e.kind.conftest import CLUSTER
from e2e.kind.groups import Group
from e2e.kind.story import Report, story
from e2e.kind.tools import image_like, load_image, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(900)]


def test_an_upgrade_to_another_image(pair: Group, images: dict[str, str], report: Report) -> None:
    """The slave first, the master after a switchover, each once; then all run the new one."""
    new = image_like(images["broker"])
    load_image(new, CLUSTER)
    master, slave = pair.status["master"], _slave(pair)
    with story(pair, report, "another image, both brokers", FaultKind.OPERATOR) as recorder:
        recorder.fired(slave, master, detail=new)
        pair.spec["image"] = new
        pair.apply()
        until(lambda: _images(pair) == {new}, "all run the new image", 300)
        pair.wait_ready()
        recorder.healed()
    assert pair.status["master"] == slave, "the old master was restarted as a slave"
    messages = pair.messages("Restarting")
    assert [message.partition(":")[0] for message in messages] == [slave, master], messages
    assert all(new in message for message in messages), messages


def test_unpullable_image_stops_one_slave_and_is_reverted(
    pair: Group, images: dict[str, str], report: Report
) -> None:
    """The master and its reads continue; the status names the fault; a good image repairs it."""
    master, slave = pair.status["master"], _slave(pair)
    good, wrong = pair.spec.get("image", images["broker"]), "fmq/nowhere:1"
    with story(pair, report, "an image that cannot be had", FaultKind.OPERATOR) as recorder:
        recorder.fired(slave, detail=wrong)
        pair.spec["image"] = wrong
        pair.apply()
        until(lambda: _no_image(pair, slave), "the status names the image", 120)
        assert wrong not in _images_of(pair, master), "the master is not touched"
        assert (pair.status["master"], pair.status["mode"]) == (master, "MASTER")
        until(lambda: pair.status["access"] == "READ", "the policy needs the slave")
        pair.spec["image"] = good
        pair.apply()
        until(lambda: _images(pair) == {good}, "all run the good image again", 300)
        pair.wait_ready()
        recorder.healed()
    assert pair.status["master"] == master, "it never had to move"


# ---- what they look at


def _slave(group: Group) -> str:
    return next(b for b in ("g1-0", "g1-1") if b != group.status["master"])


def _images(group: Group) -> set[str]:
    pods = group.pods()
    return {image for pod in pods for image in _images_of(group, pod["metadata"]["name"])}


def _images_of(group: Group, broker: str) -> set[str]:
    pods = [pod for pod in group.pods() if pod["metadata"]["name"] == broker]
    return {c["image"] for pod in pods for c in pod["spec"]["containers"]}


def _no_image(group: Group, broker: str) -> bool:
    """PHASE and MESSAGE name the broker and the image before what waits for them."""
    begins = f"{broker}: image fmq/nowhere:1 cannot be pulled"
    message: str = group.status["message"]
    return group.status["phase"] == "Degraded" and message.startswith(begins)
