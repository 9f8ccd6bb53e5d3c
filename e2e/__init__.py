"""End-to-end verification of FMQ: traffic -> history -> checks, under faults.

traffic     seeded clients that send, consume, come and go, through ports they are given
history     what happened, in order, as seen from outside; journals that a run left
checks      pure functions over a history and its journals
chaos       real processes and a real ZooKeeper ensemble, under every kind of fault
kind        the chart on a real Kubernetes cluster
dashboards  the chart's dashboards and alerts on a real Prometheus
"""
