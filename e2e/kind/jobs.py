"""BrokerJobs on the cluster, and the data that they work on."""

from typing import Final

from e2e.kind.groups import Group, Json
from e2e.kind.tools import apply, get, kubectl, until

RECORDS: Final = 6000
_FILL: Final = f"""
fmq topic create filling --queues 2
python -c 'import os
for _ in range({RECORDS}): print(os.urandom(1000).hex())' | fmq produce filling >/dev/null
"""
_FLIP: Final = """
import glob
path = sorted(glob.glob("/var/lib/fmq/**/*.journal", recursive=True))[0]
with open(path, "r+b") as file:
    file.seek(1_000_000)
    byte = file.read(1)[0]
    file.seek(1_000_000)
    file.write(bytes([byte ^ 64]))
print(path)
"""


def fill(group: Group) -> None:
    """Create a topic `filling` with `RECORDS` messages: twelve megabytes."""
    group.in_pod(_FILL)


def plant_damage(group: Group, broker: str) -> str:
    """Change a byte of the broker's journal; return the path of the file."""
    command = ("exec", broker, "-n", group.namespace, "--", "python", "-c", _FLIP)
    return kubectl(*command).strip()


def begin(group: Group, name: str, **spec: object) -> None:
    """Create the BrokerJob."""
    apply(
        {
            "apiVersion": "fmq.io/v1alpha1",
            "kind": "BrokerJob",
            "metadata": {"name": name, "namespace": group.namespace},
            "spec": {"group": group.name, **spec},
        }
    )


def job(group: Group, name: str, *, patience_s: float = 180, **spec: object) -> Json:
    """Run it to its end; return its status."""
    begin(group, name, **spec)
    return end(group, name, patience_s)


def end(group: Group, name: str, patience_s: float = 180) -> Json:
    """Wait for its end; return its status."""

    def ended() -> bool:
        return status(group, name).get("phase") in ("Succeeded", "Failed")

    until(ended, f"the job {name} has ended", patience_s)
    return status(group, name)


def status(group: Group, name: str) -> Json:
    """Return the status that the operator wrote."""
    found = get("brokerjob", name, "-n", group.namespace)
    return (found or {}).get("status") or {}


def deep_check(group: Group, name: str) -> Json:
    """Return a check of every byte, with the operator's choice of engine."""
    return job(group, name, type="check", level="deep")
