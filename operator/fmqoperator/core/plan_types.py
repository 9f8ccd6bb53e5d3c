"""Values between `steps`, `plan` and `status`: a step, a hold, a verdict. Pure."""

from dataclasses import dataclass

from fmqcore.ids import BrokerId


@dataclass(frozen=True, slots=True)
class Hold:
    """Something wanted that must wait, or cannot be: one word, and a sentence with the reason."""

    reason: str
    message: str
    blocks: bool = False  # nothing else is started meanwhile


@dataclass(frozen=True, slots=True)
class Move:
    """This broker is wanted as master: written into the configuration, done by the brokers.

    `lost`: the master is lost for good, which makes it a promotion. A move to the acting master
    withdraws another wanted master.
    """

    to: BrokerId
    cause: str
    lost: BrokerId = BrokerId("")
    spreads: bool = False  # a step of what comes to many groups, one after another


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop this broker, of the highest number, for good."""

    broker: BrokerId
    cause: str


@dataclass(frozen=True, slots=True)
class Run:
    """Run this many brokers, fewer than now."""

    replicas: int
    cause: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop this pod; it comes back."""

    pod: str
    uid: str
    cause: str
    spreads: bool = False  # as of `Move`


Step = Move | Leave | Run | Restart


@dataclass(frozen=True, slots=True)
class Outcome:
    """At most one step; what waits, in the order of importance."""

    step: Step | None
    holds: tuple[Hold, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition without its times."""

    type: str
    status: str  # True, False, Unknown
    reason: str
    message: str = ""
