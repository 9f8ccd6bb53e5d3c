"""Writes `manifests/`: what the chart makes, for those who use no helm. Needs helm.

    python tools/render_manifests.py [--check]

`kubectl apply -k manifests` installs CRDs, admission policies and operator;
`-k manifests/quickstart` adds a ZooKeeper for a first try. `manifests/sample.yaml` is a group.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = "# Generated from charts/fmq: python tools/render_manifests.py\n"
NAMESPACE = "fmq-system"
DROPPED = ("helm.sh/chart:", "app.kubernetes.io/managed-by: Helm", "# Source:")
"""Lines about helm, which has no part in these manifests."""

PIECES = {
    "operator/operator.yaml": ("templates/rbac.yaml", "templates/operator.yaml"),
    "crds/admission.yaml": ("templates/admission.yaml",),
    "quickstart/zookeeper.yaml": ("templates/quickstart-zookeeper.yaml",),
}


def main(arguments: list[str]) -> int:
    """See the module; with --check, 1 if a file is not as it would be written."""
    stale = []
    for name, templates in PIECES.items():
        path, text = ROOT / "manifests" / name, rendered(templates)
        if "--check" in arguments:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in stale:
        print(f"manifests/{name} is not what the chart makes: {__doc__}", file=sys.stderr)
    return 1 if stale else 0


def rendered(templates: tuple[str, ...]) -> str:
    """Return the manifests that helm renders from the chart's templates."""
    command = ["helm", "template", "fmq", str(ROOT / "charts" / "fmq"), "-n", NAMESPACE]
    command += ["--kube-version", "1.34.0", "--set", "quickstart.zookeeper.enabled=true"]
    for template in templates:
        command += ["--show-only", template]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if not line.strip().startswith(DROPPED)]
    return HEAD + "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
