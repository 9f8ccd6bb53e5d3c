"""The path of a message into the broker.

    stream -> service -> permission, limits, deduplication -> journal -> commit end -> pending_acks

`service` runs one produce session from its start to its end; `pending_acks` keeps acks in order
until the policy holds; `producer_sessions` marks sessions that a newer one replaced; `intake`
defines "takes messages". This package does not import `consume`.
"""
