"""A BrokerJob as a `sparkoperator.k8s.io/v1beta2` SparkApplication. Pure, deterministic.

The driver runs `python -m fmqspark` with the job's options; brokers' claims are mounted at the
directories named there, and an archive of live brokers mounts none. A driver that ended has ended
with a verdict (its exit code), so it is not run again; only a submission that failed is, and Spark
replaces lost executors. The operator does what the kind lacks: end the application after
`timeout_seconds`.

Driver and executors run on one node, that of the volumes: others may not be able to mount them.
"""

import hashlib
from collections.abc import Sequence
from math import ceil
from typing import Final

from fmqoperator.api.base import API_VERSION, Json
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.job import BrokerJob, JobType
from fmqoperator.core.children import names
from fmqoperator.core.children.pod import on_node
from fmqoperator.core.children.quantities import amount

SPARK_API: Final = "sparkoperator.k8s.io/v1beta2"
MAIN: Final = "local:///opt/fmq/job.py"
"""The image's main program: `from fmqspark.__main__ import main; main()`."""
SPARK_VERSION: Final = "4.3.0"

_DATA: Final = "/var/lib/fmq"
ARCHIVE: Final = "/archive"
_REPORT: Final = "/report"
_MIB: Final = 1024 * 1024
_HEAP: Final = 0.6  # of a pod's memory; the rest is Python's, Arrow's and the JVM's own
_LEAST_HEAP_MIB: Final = 512  # Spark's driver refuses less than 450
_NAME_LEN: Final = 40  # Spark makes names of pods and services from it

_NO_POLICY: Final = "org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep"


def application_name(job: BrokerJob) -> str:
    """Return a name that is the same for one BrokerJob, and another for a later namesake.

    Spark's operator makes a Service with it (`<name>-ui-svc`), whose name starts with a letter and
    has no dots (RFC 1035); a BrokerJob's need not.
    """
    mark = hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:8]
    name = job.metadata.name.replace(".", "-")
    name = name if name[0].isalpha() else f"job-{name}"
    return f"{name[:_NAME_LEN].rstrip('-')}-{mark}"


def archive_options(job: BrokerJob) -> list[str]:
    """Return the options for what is archived and where to, of a plain Job, too.

    The next archive job of that claim goes on there, whichever kind it is.
    """
    spec = job.spec
    assert spec.archive is not None, "the schema asks for it"
    topics = [word for topic in spec.archive.topics for word in ("--topic", topic)]
    gone = ["--ignore-missing"] if spec.archive.ignore_missing else []
    return ["--out", f"{ARCHIVE}/{spec.group}", "--group", spec.group, *topics, *gone]


def arguments(job: BrokerJob, brokers: Sequence[str]) -> list[str]:
    """Return the options of `python -m fmqspark`; of a plain Job, too, but for the engine."""
    spec = job.spec
    given = [spec.type.value]
    if spec.live:
        given += ["--connect", names.seeds(spec.group)]
    else:
        given += [f"{_DATA}/{broker}/journal" for broker in brokers]
    match spec.type:
        case JobType.CHECK:
            given += ["--level", spec.level, "--out", _REPORT]
        case JobType.ARCHIVE:
            given += archive_options(job)
        case JobType.REBUILD_INDEX:
            pass
    if spec.rate_bytes_per_s:
        given += ["--rate", str(spec.rate_bytes_per_s)]
    return [*given, "--output", "json"]


def spark_application(
    job: BrokerJob,
    group: BrokerGroup,
    brokers: Sequence[str],
    node: str = "",
    *,
    image: str,
    service_account: str,
) -> Json:
    """Return the object. `brokers`: whose data, the master first; `node`: where, if known."""
    spec, labels = job.spec, _labels(job)
    client = {names.CLIENT_LABEL: spec.group} if spec.live else {}
    pod = _pod(job, brokers) | _place(job, group, node) | {"labels": labels | client}
    return {
        "apiVersion": SPARK_API,
        "kind": "SparkApplication",
        "metadata": {
            "name": application_name(job),
            "namespace": job.metadata.namespace,
            "labels": labels,
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
        },
        "spec": {
            "type": "Python",
            "mode": "cluster",
            "pythonVersion": "3",
            "sparkVersion": SPARK_VERSION,
            "image": spec.image or image,
            "imagePullPolicy": group.spec.image_pull_policy,
            "imagePullSecrets": list(group.spec.image_pull_secrets),
            "mainApplicationFile": MAIN,
            "arguments": [*arguments(job, brokers), "--engine", "spark"],
            "restartPolicy": {
                "type": "OnFailure",
                "onFailureRetries": 0,
                "onSubmissionFailureRetries": spec.retries,
                "onSubmissionFailureRetryInterval": 10,
            },
            "timeToLiveSeconds": spec.keep_seconds,
            "sparkConf": {
                "spark.ui.enabled": "false",
                # Spark 4.3 makes a NetworkPolicy, which the operator's roles forbid.
                "spark.kubernetes.driver.pod.excludedFeatureSteps": _NO_POLICY,
            },
            "volumes": _volumes(job, brokers),
            "driver": pod | {"serviceAccount": service_account, "env": [names.LAST_WORDS]},
            "executor": pod | {"instances": spec.executors},
        },
    }


def _place(job: BrokerJob, group: BrokerGroup, node: str) -> Json:
    found: Json = {"tolerations": [t.as_json() for t in group.spec.scheduling.tolerations]}
    if node:
        found["affinity"] = on_node(node)
    elif not job.spec.live:  # wherever it is that the first one may run
        fellows = {"matchLabels": {names.JOB_LABEL: job.metadata.name}}
        term = {"labelSelector": fellows, "topologyKey": "kubernetes.io/hostname"}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        found["affinity"] = {"podAffinity": rule}
    return found


def _labels(job: BrokerJob) -> dict[str, str]:
    """Return labels without the group's: an object with that one is a broker of the group."""
    return {
        "app.kubernetes.io/name": "fmq-job",
        "app.kubernetes.io/managed-by": "fmq-operator",
        "app.kubernetes.io/part-of": "fmq",
        names.JOB_LABEL: job.metadata.name,
    }


def _pod(job: BrokerJob, brokers: Sequence[str]) -> Json:
    """Return what driver and executors have in common."""
    requests, limits = job.spec.resources.requests, job.spec.resources.limits
    memory = limits.get("memory") or requests.get("memory") or "1Gi"
    mib = int(amount(memory) or 0) // _MIB
    heap = max(_LEAST_HEAP_MIB, int(mib * _HEAP))
    cpu = requests.get("cpu") or limits.get("cpu") or "1"
    found: Json = {
        "cores": max(1, ceil(amount(cpu) or 1)),
        "coreRequest": cpu,
        "memory": f"{heap}m",
        "memoryOverhead": f"{max(mib - heap, 384)}m",
        "podSecurityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
        },
        "volumeMounts": _mounts(job, brokers),
    }
    if "cpu" in limits:
        found["coreLimit"] = limits["cpu"]
    return found


def _reads_only(job: BrokerJob) -> bool:
    return job.spec.type is not JobType.REBUILD_INDEX


def _volumes(job: BrokerJob, brokers: Sequence[str]) -> list[Json]:
    found: list[Json] = [
        {
            "name": f"data-{number}",
            "persistentVolumeClaim": {
                "claimName": names.claim(broker),
                "readOnly": _reads_only(job),
            },
        }
        for number, broker in enumerate(() if job.spec.live else brokers)
    ]
    if job.spec.archive is not None:
        claim = {"claimName": job.spec.archive.claim}
        found.append({"name": "archive", "persistentVolumeClaim": claim})
    if job.spec.type is JobType.CHECK:
        found.append({"name": "report", "emptyDir": {"sizeLimit": "1Gi"}})
    return found


def _mounts(job: BrokerJob, brokers: Sequence[str]) -> list[Json]:
    found: list[Json] = [
        {"name": f"data-{i}", "mountPath": f"{_DATA}/{broker}", "readOnly": _reads_only(job)}
        for i, broker in enumerate(() if job.spec.live else brokers)
    ]
    if job.spec.archive is not None:
        found.append({"name": "archive", "mountPath": ARCHIVE})
    if job.spec.type is JobType.CHECK:
        found.append({"name": "report", "mountPath": _REPORT})
    return found
