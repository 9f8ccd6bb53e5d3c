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
        description="Whether to read from the running brokers, slaves first, instead of a broker's "
        "volume. The job then mounts no volume and runs on any node.",
    )
    ignore_missing: bool = Field(
        default=False,
        description="Whether missing archived files were moved away on purpose: then they do not "
        "make the verdict Incomplete.",
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
        description="check: read journals, and compare those on one node. rebuild-index: recreate "
        "the index files of a broker of a hibernated group. archive: write topics as Parquet."
    )
    group: DnsLabel = Field(
        min_length=1, description="The BrokerGroup in this namespace whose journals the job reads."
    )
    brokers: Annotated[tuple[BrokerName, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(),
        description="Brokers of the group whose journals the job reads; left out: all.",
        json_schema_extra=NO_TWICE,
    )
    level: Literal["quick", "standard", "deep"] = Field(
        default="standard",
        description="What a check reads. quick: headers and indexes. standard: control batches "
        "too. deep: every byte.",
    )
    engine: JobEngine = Field(
        default=JobEngine.AUTO,
        description="spark: one SparkApplication, which needs all the volumes on one node. local: "
        "one Job per node. auto: spark if the volumes are on one node, else local.",
    )
    executors: int = Field(
        default=2, ge=1, le=100, description="Number of executors, with engine: spark."
    )
    rate_bytes_per_s: int = Field(
        default=0, ge=0, description="Maximum bytes to read per second, in total; 0: no limit."
    )
    archive: Archive | None = Field(default=None, description=Archive.__doc__ or "")
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="The job's image, which must have the command `fmq`. Left out: for an archive "
        "and on Spark the chart's image.spark if set, else the broker's image. An archive needs "
        "pyarrow in the image (the extra `spark`; Dockerfile.spark builds such an image).",
    )
    resources: Resources = Field(
        default=Resources(),
        description="Requests and limits of each of the job's pods. With engine: spark, "
        "limits.memory is the memory of a pod and must be at least 1Gi.",
    )
    retries: int = Field(
        default=2, ge=0, le=10, description="How many times a failed pod is replaced."
    )
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
        default=0, description="The generation of the resource that the status describes."
    )
    phase: JobPhase = Field(default=JobPhase.PENDING, description="Whether the job ran.")
    verdict: Verdict = Field(default=Verdict.UNKNOWN, description="The verdict on the data.")
    exit_code: int | None = Field(
        default=None,
        description="0 clean, 1 warnings, 2 inconsistent, 3 incomplete, 64 wrong usage, "
        "69 unavailable.",
    )
    message: Words = Field(default="", description="The phase, or the verdict, in one sentence.")
    children: Annotated[tuple[ShortText, ...], Field(max_length=MAX_BROKERS)] = Field(
        default=(), description="Names of the Jobs, or of the SparkApplication, that do the work."
    )
    started_ms: int | None = Field(default=None, description="When the job started (Unix ms).")
    started_at: Annotated[str, Field(max_length=32)] = Field(
        default="", description="When the job started."
    )
    finished_at: Annotated[str, Field(max_length=32)] = Field(
        default="", description="When the job ended."
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
