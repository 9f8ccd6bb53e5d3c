"""FMQ on a real Kubernetes: a kind cluster, the chart, traffic from pods, losses.

    make e2e-smoke            # install, first group, traffic, losses, upkeep; eight minutes
    make e2e                  # all, with two workers: nodes, network, ensemble, volumes, operators
    make e2e E2E='-k drained' # a selection
    KEEP=1 make e2e-smoke     # leaves the cluster (and uses it again)

It needs docker, kind, kubectl and helm on the PATH. Not part of `make test`.

| environment | default | |
|---|---|---|
| `KIND_CLUSTER_NAME` | `fmq-e2e` | used if it exists, else created and removed at the end |
| `KIND_NODE_IMAGE` | kind's own | for `kind create cluster --image` |
| `KIND_WORKERS` | 0; of `make e2e` 2 | nodes besides the control plane |
| `KEEP` | | leave the cluster |
| `FMQ_DOCKER_BUILD` | `docker build --network host` | how images are built |
| `FMQ_SPARK_OPERATOR_UP` | | the program that installs Spark's operator (`test_spark.py`) |
"""
