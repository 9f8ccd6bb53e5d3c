"""What the operator reports of a group: phase, message, conditions, figures.

`group` puts the status together; `phases` and `root_causes` make PHASE and MESSAGE, `conditions`
the conditions, `outages` the measured outages, `metrics` the figures for Prometheus.
"""
