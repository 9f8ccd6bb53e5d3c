"""A new default image, by an upgrade of the chart: groups get it one after another.

Each group is its own cluster: groups of one cluster are restarted in turn for any reason.
"""

import time
from collections.abc import Iterator

import pytest

from e2e.kind.conftest import CLUSTER, KEEP, install, zookeepers
from e2e.kind.groups import Group
from e2e.kind.story import Report
from e2e.kind.tools import image_like, kubectl, load_image, until

pytestmark = [pytest.mark.kind, pytest.mark.timeout(1200)]

WRONG = "fmq/nowhere:2"


@pytest.fixture(scope="module")
def groups(installed: str, images: dict[str, str]) -> Iterator[list[Group]]:
    """Three groups that name no image; afterwards the operator's default is restored."""
    namespace = f"fmq-default-{time.time_ns() // 1_000_000_000 % 100_000}"
    made = [Group(f"d{n}", namespace, installed, images["broker"]) for n in range(3)]
    for group in made:
        group.spec["cluster"] = group.name
        group.make()
    for group in made:
        group.wait_ready()
    try:
        yield made
    finally:
        if not KEEP:
            kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=180s")
        install(images, zookeepers())


def test_unpullable_image_stops_the_roll_at_the_first_group(
    groups: list[Group], images: dict[str, str]
) -> None:
    """One slave of one group; the others report which group is first, and serve as before."""
    install(images | {"broker": WRONG}, zookeepers())
    until(lambda: WRONG in _images(groups), "one group has started", 120)
    until(lambda: len(_waiting(groups)) == 2, "the others report which group they wait for", 60)
    time.sleep(40)  # longer than the operator's pause between two looks
    assert _images(groups).count(WRONG) == 1
    assert len(_waiting(groups)) == 2
    assert [g.status["access"] for g in groups].count("FULL") == 2
    (first,) = [g for g in groups if WRONG in _images([g])]
    messages = " ".join(_waiting(groups))
    assert messages.count(f"{first.namespace}/{first.name} first") == 2, messages


def test_good_image_reaches_the_groups_one_after_another(
    groups: list[Group], images: dict[str, str], report: Report
) -> None:
    new = image_like(images["broker"])
    load_image(new, CLUSTER)
    start_s = time.monotonic()
    install(images | {"broker": new}, zookeepers())
    seen: list[str] = []  # groups in the order in which one of their brokers got the new image

    def all_have_it() -> bool:
        now = {group.name: _images([group]) for group in groups}
        seen.extend(name for name, found in now.items() if new in found and name not in seen)
        for name in seen[:-1]:
            assert set(now[name]) == {new}, f"{seen[-1]} has started before {name} was done: {now}"
        return all(set(found) == {new} and len(found) == 2 for found in now.values())

    until(all_have_it, "all run the new image", 600)
    for group in groups:
        group.wait_ready()
    until(lambda: not any(map(_turn, groups)), "every turn is over")
    report["new default image, three groups, one after another"] = (
        f"{time.monotonic() - start_s:.0f} s"
    )


def _turn(group: Group) -> str:
    found: str = group.status.get("memory", {}).get("restartTurn", "")
    return found


def _images(groups: list[Group]) -> list[str]:
    """Return the images of all brokers."""
    pods = [pod for group in groups for pod in group.pods()]
    return [c["image"] for pod in pods for c in pod["spec"]["containers"]]


def _waiting(groups: list[Group]) -> list[str]:
    """Return the messages of groups that wait for their turn."""
    messages = [str(group.status.get("message", "")) for group in groups]
    return [text for text in messages if "the operator's new image rolls out to 1 group" in text]
