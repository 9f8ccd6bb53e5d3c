"""The demo: real data through a real cluster while a master is killed, and a verdict.

`run` plays it, `traffic` sends and consumes, `outage_probe` measures, `verdict` judges (pure),
`replica_comparison` compares journals, `display` shows progress and the report.
"""
