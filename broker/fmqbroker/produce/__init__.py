"""The path of a message into the broker.

    stream -> service -> permission, limits, deduplication -> journal -> commit end -> pending_acks

`service` is one produce session from its start to its end; `pending_acks` keeps acks in order until
the policy holds; `producer_sessions` refuses sessions that a newer one replaced; `intake` is the
one definition of "takes messages". Does not know `consume`.
"""
