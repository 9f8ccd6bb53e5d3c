"""Stored segments, apart from the message path: downloads for jobs, retention, topic claims.

`segment_service` serves ranges of segment files to data jobs, throttled; `retention` removes whole
segments that no broker needs; `topic_claims` keeps the journal's topic ids reserved in ZooKeeper.
Only `admin`, `failover` and `app` may import this package.
"""
