"""Check one journal's replicas: what is wrong, where, and what was checked.

`job` runs it: `segment` on each replica, `replicas` and `compare` between them, `reports` and
`page` show the findings.
"""
