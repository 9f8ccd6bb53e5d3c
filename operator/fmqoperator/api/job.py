"""BrokerJob: a data job over a group's journals, beside their volumes. Pure.

"The job ran" (`status.phase`) and "the data is consistent" (`status.verdict`) are two verdicts.
"""

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from fmqoperator.api.base import (
    API_VERSION,
    MAX_BROKERS,
    NO_TWICE,
    BrokerName,
    Conditions,
    DnsLabel,
    Metadata,
    Part,
    ShortText,
    Words,
    rules,
)
from fmqoperator.api.parts import Resources


class JobType(Enum):
    """What the job does."""

    CHECK = "check"
    REBUILD_INDEX = "rebuild-index"
    ARCHIVE = "archive"


class JobEngine(Enum):
    """Where the work is done."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class Archive(Part):
    """Topics to archive, and the destination."""

    topics: Annotated[
        tuple[Annotated[str, Field(max_length=128)], ...], Field(min_length=1, max_length=128)
    ] = Field(description="Topics to archive.")
    claim: DnsLabel = Field(
        min_length=1, description="The PersistentVolumeClaim that the Parquet files go to."
    )
    live: bool = Field(
        default=False,
        description="Read from the brokers at work, slaves first, instead of a broker's volume: "
        "none is mounted, so it runs on any node, and what is read is as of now.",
    )
    ignore_missing: bool = Field(
        default=False,
        description="Archived files that are gone were moved away on purpose: the verdict is not "
        "Incomplete for them.",
    )


_SAME = (
    "{0} of a job cannot be changed: create a new BrokerJob",
    "has(self.{0}) == has(oldSelf.{0}) && (!has(self.{0}) || self.{0} == oldSelf.{0})",
)


class BrokerJobSpec(Part):
    """The declaration."""

    model_config = rules(
        *(
            (_SAME[1].format(name), _SAME[0].format(name))
            for name in ("type", "group", "brokers", "level", "engine", "archive")
        ),
        (
            "has(self.archive) == (self.type == 'archive')",
            "archive belongs to type archive only: set both or neither",
        ),
        (
            "self.type != 'archive' || !has(self.brokers) || self.brokers.size() <= 1",
            "archive reads one replica: name one broker, or none for the group's master",
        ),
        (
            "!has(self.archive) || !has(self.archive.live) || !self.archive.live || "
            "!has(self.brokers) || self.brokers.size() == 0",
            "archive.live reads from any broker that has the records: leave brokers out",
        ),
        (
            "self.type != 'rebuild-index' || (has(self.brokers) && self.brokers.size() == 1)",
            "rebuild-index works on one broker's files: name it in brokers",
        ),
        (
            "self.engine != 'spark' || !('memory' in self.resources.limits) || "
            "quantity(string(self.resources.limits['memory'])).compareTo(quantity('1Gi')) >= 0",
            "each pod of Spark takes 1Gi of memory at least: raise resources.limits.memory, or "
            "choose engine local",
        ),
    )

    type: JobType = Field(
        description="check: read journals, and compare those that lie on one node. rebuild-index: "
        "recreate the index files of a broker of a hibernated group. archive: topics to Parquet."
    )
    group: DnsLabel = Field(
        min_length=1, description="The BrokerGroup in this namespace whose journals the job reads."
    )
    brokers: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(),
        description="Brokers of that group; left out: all.",
        json_schema_extra=NO_TWICE,
    )
    level: Literal["quick", "standard", "deep"] = Field(
        default="standard",
        description="Of a check: headers and indexes, control batches too, or every byte.",
    )
    engine: JobEngine = Field(
        default=JobEngine.AUTO,
        description="spark: a SparkApplication, which needs all the volumes on one node. local: "
        "plain Jobs, one for each node. auto: the first where it can be, else the second.",
    )
    executors: int = Field(default=2, ge=1, le=100, description="Spark's executors.")
    rate_bytes_per_s: int = Field(
        default=0, ge=0, description="Most bytes to read per second, in total; 0: no limit."
    )
    archive: Archive | None = Field(default=None, description=Archive.__doc__ or "")
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="The job's image, with the command `fmq`; left out: image.spark of the chart "
        "on Spark and for an archive, if that is set, else the broker's. An archive needs one with "
        "pyarrow (the extra `spark`; Dockerfile.spark makes one).",
    )
    resources: Resources = Field(
        default=Resources(),
        description="Of each of the job's pods. On Spark limits.memory is what a pod gets, 1Gi at "
        "least.",
    )
    retries: int = Field(default=2, ge=0, le=10, description="How often a failed pod is replaced.")
    timeout_seconds: int = Field(
        default=86_400, ge=60, le=2_592_000, description="Seconds after which the job is stopped."
    )
    keep_seconds: int = Field(
        default=604_800, ge=60, description="Seconds for which the pods of an ended job are kept."
    )

    @property
    def live(self) -> bool:
        """It reads from brokers at work and mounts no volume of theirs."""
        return self.archive is not None and self.archive.live


class JobPhase(Enum):
    """Whether the job ran."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Verdict(Enum):
    """What it found."""

    CLEAN = "Clean"
    WARNINGS = "Warnings"
    INCONSISTENT = "Inconsistent"
    INCOMPLETE = "Incomplete"
    UNKNOWN = "Unknown"


class BrokerJobStatus(Part):
    """The state, as the operator last observed it."""

    observed_generation: int = Field(
        default=0, description="The generation that this status is about."
    )
    phase: JobPhase = Field(default=JobPhase.PENDING, description="Whether the job ran.")
    verdict: Verdict = Field(default=Verdict.UNKNOWN, description="The verdict on the data.")
    exit_code: int | None = Field(
        default=None,
        description="0 clean, 1 warnings, 2 inconsistent, 3 incomplete, 64 wrong usage, "
        "69 unavailable.",
    )
    message: Words = Field(default="", description="The phase, or the verdict, in a sentence.")
    children: Annotated[tuple[ShortText, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="The Jobs or the SparkApplication that do the work."
    )
    started_ms: int | None = Field(default=None, description="When it started (unix ms).")
    started_at: Annotated[str, Field(max_length=32)] = Field(
        default="", description="When it started."
    )
    finished_at: Annotated[str, Field(max_length=32)] = Field(
        default="", description="When it ended."
    )
    conditions: Conditions = ()


class BrokerJob(Part):
    """A job over a group's journals: check, rebuild indexes, archive."""

    model_config = rules(
        (
            "size(self.metadata.name) <= 63",
            "metadata.name becomes the label fmq.io/job: at most 63 characters",
        )
    )

    api_version: Literal["fmq.io/v1alpha1"] = API_VERSION
    kind: Literal["BrokerJob"] = "BrokerJob"
    metadata: Metadata
    spec: BrokerJobSpec = Field(description="The declaration.")
    status: BrokerJobStatus = Field(
        default=BrokerJobStatus(), description="The state, as the operator last observed it."
    )
