"""The Job of a BrokerJob: `fmq job ...` beside the volumes of one node. Pure."""

from typing import Final

from fmqoperator.api.base import API_VERSION, Json
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.job import BrokerJob, JobType
from fmqoperator.core.children import names
from fmqoperator.core.children.pod import USER, on_node
from fmqoperator.core.jobs.spark_application import ARCHIVE, archive_options
from fmqoperator.core.observation import HASH, Defaults

BROKERS: Final = "fmq.io/brokers"
"""Annotation of a Job: the brokers whose volumes it has."""

_VERDICT_CODES: Final = (1, 2, 3)
_IN_VAIN: Final = (64, 69)
_MOST_S: Final = 2**31 - 1
"""Maximum of a Kubernetes int32.

It takes a larger one without its upper half, which may leave nothing, and would delete a Job as
soon as it ends.
"""
_DATA: Final = "/data"


def brokers_of(job: Json) -> tuple[str, ...]:
    """Return the brokers whose volumes a Job has."""
    text = job.get("metadata", {}).get("annotations", {}).get(BROKERS, "")
    return tuple(b for b in text.split(",") if b)


def is_of(child: Json, job: BrokerJob) -> bool:
    """Whether a Job or SparkApplication was made for this BrokerJob, not for a namesake."""
    owners = child.get("metadata", {}).get("ownerReferences") or ()
    return any(owner.get("uid") == job.metadata.uid for owner in owners)


def name_of(job: BrokerJob, first: str) -> str:
    """Return the name of the Job with that first broker, with a hash if it would be too long."""
    name = f"{job.metadata.name}-{first}"
    # No label of a name may end with a dash before its dot, or start with one behind it.
    short = name[:46].rstrip(".-")
    return name if len(name) <= 63 else f"{short}-{names.digest({'name': name})}"


def job_object(
    job: BrokerJob, group: BrokerGroup, defaults: Defaults, node: str, brokers: tuple[str, ...]
) -> Json:
    """Return one Job; `node` "": the scheduler finds where the volume lies."""
    labels = {
        "app.kubernetes.io/name": "fmq-job",
        "app.kubernetes.io/managed-by": "fmq-operator",
        "app.kubernetes.io/part-of": "fmq",
        names.JOB_LABEL: job.metadata.name,
    }
    client = {names.CLIENT_LABEL: job.spec.group} if job.spec.live else {}
    metadata: Json = {
        "name": name_of(job, brokers[0]),
        "namespace": job.metadata.namespace,
        "labels": labels,
        "annotations": {BROKERS: ",".join(brokers)},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "BrokerJob",
                "name": job.metadata.name,
                "uid": job.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    spec: Json = {
        "backoffLimit": job.spec.retries,
        "activeDeadlineSeconds": job.spec.timeout_seconds,
        # One of several may end long before the last, and none may go before its end is reported:
        # the operator removes them in time, and this is for when it is not there to do so.
        "ttlSecondsAfterFinished": min(job.spec.timeout_seconds + job.spec.keep_seconds, _MOST_S),
        # A verdict is no failure, and another try does not mend some failures.
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": "job",
                        "operator": "In",
                        "values": sorted([*_VERDICT_CODES, *_IN_VAIN]),
                    },
                },
                # A pod that a drain removed is no sign of how the job went.
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
            ]
        },
        "template": {
            "metadata": {"labels": labels | client},
            "spec": _pod(job, group, defaults, node, brokers),
        },
    }
    made: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    metadata["annotations"][HASH] = names.digest(made)
    return made


def _pod(
    job: BrokerJob, group: BrokerGroup, defaults: Defaults, node: str, brokers: tuple[str, ...]
) -> Json:
    writes = job.spec.type is JobType.REBUILD_INDEX
    mounted = () if job.spec.live else brokers
    volumes: list[Json] = [
        {"name": f"data-{at}", "persistentVolumeClaim": {"claimName": names.claim(broker)}}
        for at, broker in enumerate(mounted)
    ]
    mounts: list[Json] = [
        {"name": f"data-{at}", "mountPath": f"{_DATA}/{broker}", "readOnly": not writes}
        for at, broker in enumerate(mounted)
    ]
    if job.spec.archive is not None:
        claim = {"claimName": job.spec.archive.claim}
        volumes.append({"name": "archive", "persistentVolumeClaim": claim})
        mounts.append({"name": "archive", "mountPath": ARCHIVE})
    volumes.append({"name": "tmp", "emptyDir": {}})
    mounts.append({"name": "tmp", "mountPath": "/tmp"})
    container = {
        "name": "job",
        "image": _image(job, group, defaults),
        "imagePullPolicy": group.spec.image_pull_policy,
        # By name: the image with Spark, which archives here too, starts something else.
        "command": ["fmq"],
        "args": arguments(job, brokers),
        "resources": job.spec.resources.as_json(),
        # For the status: the job's last words, or the end of the log of one that died.
        "env": [names.LAST_WORDS],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": mounts,
    }
    body: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
        "tolerations": [t.as_json() for t in group.spec.scheduling.tolerations],
    }
    if group.spec.image_pull_secrets:
        body["imagePullSecrets"] = [{"name": name} for name in group.spec.image_pull_secrets]
    if node:
        body["affinity"] = on_node(node)
    return body


def _image(job: BrokerJob, group: BrokerGroup, defaults: Defaults) -> str:
    """Return the image. An archive needs what only the image with Spark has, if one is known."""
    with_arrow = defaults.spark_image if job.spec.type is JobType.ARCHIVE else ""
    return job.spec.image or with_arrow or group.spec.image or defaults.broker_image


def arguments(job: BrokerJob, brokers: tuple[str, ...]) -> list[str]:
    """Return the arguments of the command `fmq`."""
    spec = job.spec
    directories = [f"{_DATA}/{broker}/journal" for broker in brokers]
    rate = ["--rate", str(spec.rate_bytes_per_s)] if spec.rate_bytes_per_s else []
    match spec.type:
        case JobType.CHECK:
            return ["job", "check", *directories, "--level", spec.level, *rate]
        case JobType.REBUILD_INDEX:
            return ["job", "rebuild-index", *directories, *rate]
        case JobType.ARCHIVE:
            source = ["--connect", names.seeds(spec.group)] if spec.live else directories
            return ["job", "archive", *source, *archive_options(job), *rate]
