"""Calls of people and the operator to one broker: topics, consumer groups, its own state.

`service` answers the calls; `offset_rows` builds the rows of progress and lag page by page;
`served_periods` reports since when clients were served. Only `failover` and `app` may import this
package.
"""
