"""An operator without its rights: the alerts report it, and fall silent once it has them.

Without a cluster, as `test_many_groups.py`: a real API server judges by the roles of the manifests,
some of which are withheld. Alerts wait for `FOR_S`.
"""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.dashboards.alert_causes import causes
from e2e.dashboards.chart import eager_rules
from e2e.dashboards.prometheus import NEEDED, Prometheus, Target, available, prometheus
from e2e.kind.bare import install, kubeconfig, make_group, operator
from e2e.kind.tools import ROOT, until
from fmqoperator.tests.apiserver import OPERATOR, ApiServer, api_server, programs

pytestmark = [
    pytest.mark.kind,
    pytest.mark.timeout(900),
    pytest.mark.skipif(programs() is None, reason="no etcd and kube-apiserver on the PATH"),
    pytest.mark.skipif(not available(), reason=NEEDED),
]

FOR_S = 5
RBAC = "rbac.authorization.k8s.io"
NEGLECTED, FAILS = "FmqGroupNotLookedAfter", "FmqOperatorFails"
LABELS = {"namespace": "fmq-system", "job": "fmq-operator"}
LOOKS = {"get", "list", "watch"}


class Rights:
    """The rights of the operator's account: at first its Lease."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        made = yaml.safe_load_all((ROOT / "manifests" / "operator" / "operator.yaml").read_text())
        self._rules: dict[str, Any] = {
            o["metadata"]["name"]: o["rules"] for o in made if "rules" in o
        }
        self._allow("Role", "lease", self._rules["fmq-operator-lease"], "fmq-system")

    def grant_reads(self, but: str = "") -> None:
        """Grant reading everything but that one kind."""
        rules = [
            rule
            | {"verbs": sorted(LOOKS & set(rule["verbs"]))}
            | {"resources": [kind for kind in rule["resources"] if kind != but]}
            for name in ("watch", "groups")
            for rule in self._rules[f"fmq-fmq-system-{name}"]
        ]
        rules = [rule for rule in rules if rule["verbs"] and rule["resources"]]
        self._allow("ClusterRole", "looks", rules)

    def work(self, namespace: str) -> None:
        """Grant its work in that namespace."""
        self._allow("Role", "works", self._rules["fmq-fmq-system-groups"], namespace)

    def _allow(self, kind: str, name: str, rules: Any, namespace: str = "") -> None:
        who = {"apiGroup": RBAC, "kind": "User", "name": OPERATOR}
        role = {"apiGroup": RBAC, "kind": kind, "name": name}
        self._apply(kind, name, namespace, {"rules": rules})
        self._apply(f"{kind}Binding", name, namespace, {"roleRef": role, "subjects": [who]})

    def _apply(self, kind: str, name: str, namespace: str, what: dict[str, Any]) -> None:
        where = f"namespaces/{namespace}/" if namespace else ""
        path = f"/apis/{RBAC}/v1/{where}{kind.lower()}s/{name}?fieldManager=test&force=true"
        body = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}} | what
        self._api.call("PATCH", path, body, kind="apply-patch+yaml")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server with two namespaces, a and b."""
    with api_server(tmp_path) as found:
        install(found)
        for name in ("a", "b"):
            found.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        yield found


def firing(found: Prometheus) -> dict[str, set[str]]:
    """Return which of the two alerts fires, and for which objects."""
    return {
        name: {alert["labels"].get("group", "") for alert in alerts}
        for name, alerts in found.alerts().items()
        if name in (NEGLECTED, FAILS)
    }


@causes(NEGLECTED, FAILS)
def test_operator_without_write_rights_then_alerts_fire(
    api: ApiServer, zookeeper: str, tmp_path: Path
) -> None:
    """In every namespace; then in one; then in none."""
    rights = Rights(api)
    rights.grant_reads()
    make_group(api, "g1", zookeeper, "a")
    make_group(api, "g2", zookeeper, "b")
    rules = eager_rules(tmp_path / "r.yaml", FOR_S)
    with operator(tmp_path, kubeconfig(api, tmp_path / "config", OPERATOR)) as works:
        target = Target("operator", works.address, labels=LABELS)
        with prometheus(tmp_path, [target], rules) as found:
            until(lambda: found.query("fmq_operator_groups == 2"), "it has seen both")
            assert firing(found) == {}
            both = {NEGLECTED: {"g1", "g2"}, FAILS: {""}}
            until(lambda: firing(found) == both, "no round of either goes through")
            rights.work("a")
            until(lambda: firing(found) == {NEGLECTED: {"g2"}}, "those of one do")
            rights.work("b")
            until(lambda: firing(found) == {}, "those of both do")


@causes(FAILS)
def test_operator_without_list_rights_then_alerts_fire(
    api: ApiServer, zookeeper: str, tmp_path: Path
) -> None:
    """It knows no group, and continues by itself once allowed."""
    rights = Rights(api)
    rights.grant_reads(but="brokergroups")
    rights.work("a")
    make_group(api, "g1", zookeeper, "a")
    rules = eager_rules(tmp_path / "r.yaml", FOR_S)
    with operator(tmp_path, kubeconfig(api, tmp_path / "config", OPERATOR)) as blind:
        target = Target("operator", blind.address, labels=LABELS)
        with prometheus(tmp_path, [target], rules) as found:
            until(lambda: found.query("fmq_operator_lease_held == 1"), "it works")
            assert firing(found) == {}
            until(lambda: firing(found) == {FAILS: {""}}, "it lists groups in vain")
            assert blind.figure("fmq_operator_groups") == 0
            rights.grant_reads()
            until(lambda: firing(found) == {}, "it sees everything")
            until(lambda: blind.figure("fmq_operator_group_brokers", "g1") == 2, "the group, too")


def test_operator_without_one_read_right_reports_it(
    api: ApiServer, zookeeper: str, tmp_path: Path
) -> None:
    """One kind of many: no group is changed until it is allowed; then all are."""
    rights = Rights(api)
    rights.grant_reads(but="configmaps")
    rights.work("a")
    make_group(api, "g1", zookeeper, "a")
    path = "/apis/fmq.io/v1alpha1/namespaces/a/brokergroups/g1"

    def applied() -> dict[str, Any]:
        conditions = api.call("GET", path).get("status", {}).get("conditions", ())
        return next((c for c in conditions if c["type"] == "ConfigApplied"), {})

    with operator(tmp_path, kubeconfig(api, tmp_path / "config", OPERATOR)) as blind:
        until(lambda: applied().get("reason") == "OperatorBlind", "its status reports it")
        assert 'cannot list resource "configmaps"' in applied()["message"]
        events = api.call("GET", "/api/v1/namespaces/a/events")["items"]
        assert [e["message"] for e in events if e["reason"] == "OperatorBlind"] == [
            applied()["message"]
        ]
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://{blind.address}/readyz", timeout=30)
        rights.grant_reads()
        until(lambda: applied().get("reason") != "OperatorBlind", "it sees and reports everything")
        with urllib.request.urlopen(f"http://{blind.address}/readyz", timeout=30) as page:
            assert page.status == 200
