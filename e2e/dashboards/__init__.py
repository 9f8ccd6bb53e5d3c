"""Verify what people see of FMQ: the chart's dashboards and alerts on a real Prometheus.

python -m e2e.dashboards [--out FILE]       the overview under load and a loss, as a picture
"""
