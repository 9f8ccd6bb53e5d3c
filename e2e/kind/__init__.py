"""FMQ on a real Kubernetes: a kind cluster, the chart, traffic from pods, losses.

    make e2e-smoke            # install, first group, traffic, losses, uninstall; five minutes
    KEEP=1 make e2e-smoke     # leaves the cluster (and uses it again)

It needs docker, kind, kubectl and helm on the PATH. Not part of `make test`.

| environment | default | |
|---|---|---|
| `KIND_CLUSTER_NAME` | `fmq-e2e` | used if it is there, else made, and removed at the end |
| `KIND_NODE_IMAGE` | kind's own | for `kind create cluster --image` |
| `KEEP` | | leave what was made |
| `FMQ_DOCKER_BUILD` | `docker build --network host` | how images are built |
"""
