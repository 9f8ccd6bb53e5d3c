"""Calls of people and the operator to one broker: topics, consumer groups, its own state.

`service` answers for consumer groups and status, `topics` for topics, `ordered_topics` for the
chains of ordered ones; `offset_rows` builds the rows of progress and lag page by page. `snapshot`
is the value from which status, probes and metrics are made, `snapshot_source` takes it,
`served_periods` adds since when clients were served. Only `failover` and `app` may import this
package.
"""
