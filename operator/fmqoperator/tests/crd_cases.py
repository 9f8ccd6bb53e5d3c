"""Resources that the API server must refuse, with which message, or accept: one case a rule.

Each case starts from a valid resource and changes it at creation (`change`) or by an update
(`update`).
"""

from copy import deepcopy
from typing import Any, NamedTuple

Body = dict[str, Any]


class Case(NamedTuple):
    """`change`: paths and values (None = remove) on top of the kind's valid resource."""

    name: str
    kind: str
    change: dict[str, Any]
    refused: str = ""  # part of the message; "" = accepted
    first: dict[str, Any] | None = None  # created with these changes, then updated by `change`


GOOD: dict[str, Body] = {
    "BrokerGroup": {
        "metadata": {"name": "g1"},
        "spec": {"zookeeper": {"connect": "zk-0.zk:2181,zk-1.zk:2181"}},
    },
    "Topic": {
        "metadata": {"name": "orders"},
        "spec": {
            "zookeeper": {"connect": "zk:2181"},
            "groups": [{"group": "g1", "queues": 8}],
        },
    },
    "BrokerJob": {"metadata": {"name": "j1"}, "spec": {"type": "check", "group": "g1"}},
}

_G, _T, _J = "BrokerGroup", "Topic", "BrokerJob"
_NAMES = "are named <metadata.name>-0 to <metadata.name>-<replicas - 1>"
_OVER = "may not be over resources.limits.memory"
_CONNECT = "zookeeper.connect: host:port of each server, separated by commas"
OVER_TWO = {"groups": [{"group": "g1"}, {"group": "g2", "weight": 3}]}
_ORDERED: dict[str, Any] = {"spec.groups": None, "spec.ordered": OVER_TWO}
_ARCHIVE = {"topics": ["orders"], "claim": "parquet"}

CASES = (
    # ---- BrokerGroup: what does not go together
    Case("defaults", _G, {}),
    Case("one broker alone", _G, {"spec.replicas": 1, "spec.policy.howMany": "none"}),
    Case("one needs a slave", _G, {"spec.replicas": 1}, "set replicas to 2 or more"),
    Case("zones with three", _G, {"spec.replicas": 3, "spec.policy.howMany": "zones"}),
    Case("zones need two slaves", _G, {"spec.policy.howMany": "zones"}, "set replicas to 3"),
    Case("strict all", _G, {"spec.policy": {"howMany": "all", "strict": True}}),
    Case("strict needs all", _G, {"spec.policy.strict": True}, "set policy.howMany to all"),
    Case("promotion", _G, {"spec.promotion": {"policy": "after", "afterSeconds": 60}}),
    Case(
        "promotion needs copies",
        _G,
        {"spec.promotion.policy": "after", "spec.policy.howMany": "none"},
        "promotion.policy after needs slaves",
    ),
    Case(
        "promotion needs a slave",
        _G,
        {"spec.promotion.policy": "after", "spec.policy.howMany": "all", "spec.replicas": 1},
        "promotion.policy after needs slaves",
    ),
    Case(
        "promotion without slave reads",
        _G,
        {"spec.promotion.policy": "after", "spec.slaveReads": False},
        "set slaveReads to true",
    ),
    Case("slaves that shall not read", _G, {"spec.slaveReads": False}),
    Case("switchover", _G, {"spec.switchover.to": "g1-1"}),
    Case("switchover to none of ours", _G, {"spec.switchover.to": "g2-1"}, _NAMES),
    Case("switchover to one too many", _G, {"spec.switchover.to": "g1-2"}, _NAMES),
    Case("switchover to no number", _G, {"spec.switchover.to": "g1-x"}, _NAMES),
    Case(
        "permissions",
        _G,
        {"spec.permissions": [{"broker": "g1-1", "permission": "READ"}]},
    ),
    Case(
        "permissions of none of ours",
        _G,
        {"spec.permissions": [{"broker": "g1-7", "permission": "READ"}]},
        _NAMES,
    ),
    Case(
        "permissions twice",
        _G,
        {"spec.permissions": [{"broker": "g1-1", "permission": p} for p in ("READ", "NONE")]},
        "Duplicate value",
    ),
    Case(
        "a master that may not write",
        _G,
        {
            "spec.switchover.to": "g1-1",
            "spec.permissions": [{"broker": "g1-1", "permission": "READ"}],
        },
        "remove it from permissions",
    ),
    Case("a name with a dot", _G, {"metadata.name": "g.1"}, "metadata.name is part of"),
    Case("a name that begins with a digit", _G, {"metadata.name": "1g"}, "starting with a letter"),
    Case("a name with a digit", _G, {"metadata.name": "g-1"}),
    Case("a long name", _G, {"metadata.name": "g" * 41}, "at most 40"),
    Case("settings", _G, {"spec.settings": {"heartbeatMs": 100, "grantMs": 200}}),
    Case(
        "settings against a default",
        _G,
        {"spec.settings.heartbeatMs": 2000},
        "settings.heartbeatMs may not be over settings.grantMs",
    ),
    Case(
        "a heartbeat over the silence",
        _G,
        {"spec.settings": {"heartbeatMs": 200, "deadAfterMs": 100}},
        "settings.heartbeatMs may not be over settings.deadAfterMs",
    ),
    Case(
        "redials",
        _G,
        {"spec.settings": {"redialMinMs": 3000}},
        "settings.redialMinMs may not be over settings.redialMaxMs",
    ),
    Case(
        "windows",
        _G,
        {"spec.settings": {"sessionWindowBytes": 1 << 30}},
        "settings.sessionWindowBytes may not be over settings.totalWindowBytes",
    ),
    Case(
        "consumer heartbeats",
        _G,
        {"spec.settings": {"consumerDeadAfterMs": 1000}},
        "settings.consumerHeartbeatMs may not be over settings.consumerDeadAfterMs",
    ),
    # ---- BrokerGroup: bounds and patterns
    Case("no ZooKeeper", _G, {"spec.zookeeper": None}, "spec.zookeeper: Required value"),
    Case("a host with an empty part", _G, {"spec.zookeeper.connect": "a..b:1"}, _CONNECT),
    Case("a path to above", _G, {"spec.zookeeper.connect": "zk:2181/../x"}, _CONNECT),
    Case("a path without a name", _G, {"spec.zookeeper.connect": "zk:2181//x"}, _CONNECT),
    Case("an IPv6 address", _G, {"spec.zookeeper.connect": "[fd00::1]:2181,zk:2181/fmq"}),
    Case("an open bracket", _G, {"spec.zookeeper.connect": "[fd00::1:2181"}, _CONNECT),
    Case("a full name and path", _G, {"spec.zookeeper.connect": "a.b.:1,c-1.d:2181/e/f..g/"}),
    Case(
        "a session that never ends",
        _G,
        {"spec.settings": {"sessionTimeoutMs": 10**15}},
        "should be less than or equal to 3600000",
    ),
    Case(
        "a promise that never ends",
        _G,
        {"spec.settings": {"grantMs": 2**32}},
        "should be less than or equal to 3600000",
    ),
    Case(
        "consumers that never say a word",
        _G,
        {"spec.settings": {"consumerHeartbeatMs": 2**32, "consumerDeadAfterMs": 2**33}},
        "should be less than or equal to 3600000",
    ),
    Case("ZooKeeper without a port", _G, {"spec.zookeeper.connect": "zk"}, _CONNECT),
    Case("secrets", _G, {"spec.imagePullSecrets": ["a", "b"]}),
    Case("a secret twice", _G, {"spec.imagePullSecrets": ["a", "a"]}, "Duplicate value"),
    Case("ten brokers", _G, {"spec.replicas": 10}, "less than or equal to 9"),
    Case("no broker", _G, {"spec.replicas": 0}, "greater than or equal to 1"),
    Case("an odd flush", _G, {"spec.policy.flush": "maybe"}, "Unsupported value"),
    Case("an odd segment", _G, {"spec.settings.segmentBytes": 65537}, "multiple of 4096"),
    Case("no size at all", _G, {"spec.storage.size": "0"}, "storage.size must be at least 1Mi"),
    Case("a size in bytes", _G, {"spec.storage.size": "100"}, "storage.size must be at least 1Mi"),
    Case("a small size", _G, {"spec.storage.size": "1Mi"}),
    Case("a size in words", _G, {"spec.storage.size": "big"}, "should match"),
    Case("cpu as a number", _G, {"spec.resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2}}}),
    Case("more asked for than given", _G, {"spec.resources.requests": {"memory": "2Gi"}}, _OVER),
    Case(
        "less given than asked for",
        _G,
        {"spec.resources.limits": {"cpu": "100m"}},
        "over resources.limits.cpu",
    ),
    Case(
        "both", _G, {"spec.resources": {"requests": {"memory": "2G"}, "limits": {"memory": "2Gi"}}}
    ),
    Case("no limits", _G, {"spec.resources": {"requests": {"memory": "2Gi"}, "limits": {}}}),
    Case("a job's, too", _J, {"spec.resources.requests": {"memory": "2Gi"}}, _OVER),
    Case("Spark's least", _J, {"spec.engine": "spark", "spec.resources.limits": {"memory": "1Gi"}}),
    Case(
        "less than Spark's least",
        _J,
        {"spec.engine": "spark", "spec.resources.limits": {"memory": "1000Mi"}},
        "1Gi of memory at least",
    ),
    # ---- BrokerGroup: what cannot be changed
    Case(
        "a cluster", _G, {"spec.cluster": "b"}, "cluster cannot be changed", {"spec.cluster": "a"}
    ),
    Case("a cluster taken away", _G, {}, "cluster cannot be changed", {"spec.cluster": "a"}),
    Case("a cluster given late", _G, {"spec.cluster": "a"}, "cluster cannot be changed", {}),
    Case("the same cluster", _G, {"spec.cluster": "a"}, "", {"spec.cluster": "a"}),
    Case(
        "a slash at the path's end",
        _G,
        {"spec.zookeeper.connect": "zk:2181/a/"},
        "",
        {"spec.zookeeper.connect": "zk:2181/a"},
    ),
    Case("a slash alone", _G, {"spec.zookeeper.connect": "zk:2181/"}, "", {}),
    Case("other ZooKeeper hosts", _G, {"spec.zookeeper.connect": "other:2181"}, "", {}),
    Case(
        "another ZooKeeper path",
        _G,
        {"spec.zookeeper.connect": "zk:2181/b"},
        "the path after the hosts cannot be changed",
        {"spec.zookeeper.connect": "zk:2181/a"},
    ),
    Case(
        "a ZooKeeper path given late",
        _G,
        {"spec.zookeeper.connect": "zk:2181/a"},
        "the path after the hosts cannot be changed",
        {},
    ),
    Case("volumes grow", _G, {"spec.storage.size": "20Gi"}, "", {}),
    Case("volumes shrink", _G, {"spec.storage.size": "9Gi"}, "storage.size cannot shrink", {}),
    Case(
        "another class of storage",
        _G,
        {"spec.storage.storageClassName": "fast"},
        "storage.storageClassName cannot be changed",
        {},
    ),
    Case("more brokers", _G, {"spec.replicas": 3}, "", {}),
    # ---- Topic
    Case("a topic", _T, {}),
    Case(
        "no group takes messages",
        _T,
        {"spec.groups": [{"group": "g1", "queues": 8, "weight": 0}]},
        "at least one needs a weight over 0",
    ),
    Case(
        "a group twice",
        _T,
        {"spec.groups": [{"group": "g1", "queues": 8}, {"group": "g1", "queues": 4}]},
        "Duplicate value",
    ),
    Case("no group", _T, {"spec.groups": []}, "should have at least 1 items"),
    Case("another name", _T, {"spec.name": "b"}, "name cannot be changed", {"spec.name": "a"}),
    Case("another cluster", _T, {"spec.cluster": "b"}, "cluster cannot be changed", {}),
    Case(
        "fewer queues",
        _T,
        {"spec.groups": [{"group": "g1", "queues": 4}]},
        "queues of a group cannot be removed",
        {},
    ),
    Case(
        "a group taken out",
        _T,
        {"spec.groups": [{"group": "g2", "queues": 4}]},
        "",
        {},
    ),
    Case(
        "another ZooKeeper path of a topic",
        _T,
        {"spec.zookeeper.connect": "zk:2181/b"},
        "the path after the hosts cannot be changed",
        {},
    ),
    Case("an ordered topic", _T, _ORDERED),
    Case("ordered and ordinary", _T, {"spec.ordered": OVER_TWO}, "either in groups"),
    Case("no group at all", _T, {"spec.groups": None}, "name the groups either in groups"),
    Case(
        "ordered over one group",
        _T,
        {"spec.groups": None, "spec.ordered": {"groups": [{"group": "g1"}]}},
        "spec.ordered.groups in body should have at least 2 items",
    ),
    Case(
        "an ordered topic's group twice",
        _T,
        {"spec.groups": None, "spec.ordered": {"groups": [{"group": "g1"}, {"group": "g1"}]}},
        "Duplicate value",
    ),
    Case("becomes ordered", _T, _ORDERED, "an ordinary topic cannot become an ordered one", {}),
    Case(
        "ordered no more",
        _T,
        {},
        "an ordinary topic cannot become an ordered one, nor the reverse",
        _ORDERED,
    ),
    Case(
        "more queues of an ordered topic",
        _T,
        {"spec.groups": None, "spec.ordered": OVER_TWO | {"queues": 2}},
        "ordered.queues cannot be changed",
        _ORDERED,
    ),
    Case(
        "another lease of an ordered topic",
        _T,
        {"spec.groups": None, "spec.ordered": OVER_TWO | {"leaseMs": 5000}},
        "ordered.leaseMs cannot be changed",
        _ORDERED,
    ),
    Case(
        "other groups of an ordered topic",
        _T,
        {"spec.groups": None, "spec.ordered": {"groups": [{"group": "g2"}, {"group": "g3"}]}},
        "",
        _ORDERED,
    ),
    # ---- BrokerJob
    Case("a check", _J, {}),
    Case("an archive", _J, {"spec.type": "archive", "spec.archive": _ARCHIVE}),
    Case(
        "an archive of live brokers",
        _J,
        {"spec.type": "archive", "spec.archive": _ARCHIVE | {"live": True}},
    ),
    Case(
        "an archive of one live broker",
        _J,
        {
            "spec.type": "archive",
            "spec.archive": _ARCHIVE | {"live": True},
            "spec.brokers": ["g1-0"],
        },
        "archive.live reads from any broker",
    ),
    Case(
        "an archive that is live now",
        _J,
        {"spec.type": "archive", "spec.archive": _ARCHIVE | {"live": True}},
        "archive of a job cannot be changed",
        {"spec.type": "archive", "spec.archive": _ARCHIVE},
    ),
    Case("an archive of nothing", _J, {"spec.type": "archive"}, "archive belongs to type archive"),
    Case(
        "a check with an archive", _J, {"spec.archive": _ARCHIVE}, "archive belongs to type archive"
    ),
    Case("two brokers", _J, {"spec.brokers": ["g1-0", "g1-1"]}),
    Case("a broker twice", _J, {"spec.brokers": ["g1-0", "g1-0"]}, "Duplicate value"),
    Case("a rebuild", _J, {"spec.type": "rebuild-index", "spec.brokers": ["g1-1"]}),
    Case("a rebuild of all", _J, {"spec.type": "rebuild-index"}, "name it in brokers"),
    Case(
        "another type", _J, {"spec.type": "rebuild-index", "spec.brokers": ["g1-0"]}, "type of", {}
    ),
    Case("another group", _J, {"spec.group": "g2"}, "group of a job cannot be changed", {}),
    Case("other brokers", _J, {"spec.brokers": ["g1-0"]}, "brokers of a job cannot", {}),
    Case("another level", _J, {"spec.level": "deep"}, "level of a job cannot be changed", {}),
    Case("another engine", _J, {"spec.engine": "spark"}, "engine of a job cannot be changed", {}),
    Case(
        "an archive of two replicas",
        _J,
        {"spec.type": "archive", "spec.archive": _ARCHIVE, "spec.brokers": ["g1-0", "g1-1"]},
        "archive reads one replica",
    ),
    Case(
        "another archive",
        _J,
        {"spec.type": "archive", "spec.archive": {"topics": ["b"], "claim": "parquet"}},
        "archive of a job cannot be changed",
        {"spec.type": "archive", "spec.archive": _ARCHIVE},
    ),
    Case("the longest name", _J, {"metadata.name": "j" * 63}),
    Case("a name too long", _J, {"metadata.name": "j" * 64}, "becomes the label fmq.io/job"),
    Case("kept longer", _J, {"spec.keepSeconds": 100}, "", {}),
)


def body(kind: str, change: dict[str, Any]) -> Body:
    """Return the kind's valid resource with these changes."""
    made = deepcopy(GOOD[kind]) | {"apiVersion": "fmq.io/v1alpha1", "kind": kind}
    for path, value in change.items():
        *way, last = path.split(".")
        at = made
        for step in way:
            at = at.setdefault(step, {})
        if value is None:
            at.pop(last, None)
        else:
            at[last] = deepcopy(value)
    return made
