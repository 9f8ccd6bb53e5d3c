"""Read many batches at once, for data jobs and checks.

`headers` reads headers only; `skip_damage` finds the next good batch after damage; `selection`,
`payloads` and `digests` choose batches, read their records and compare replicas.
"""
