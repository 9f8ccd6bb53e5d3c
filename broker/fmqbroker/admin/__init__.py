"""Calls of people and the operator to one broker: topics, consumer groups, its own state.

`service` answers for consumer groups and status, `topics` for topics, `ordered_topics` for the
chains of ordered ones; `offset_rows` builds the rows of progress and lag page by page;
`served_periods` reports since when clients were served. Only `failover` and `app` may import this
package.
"""
