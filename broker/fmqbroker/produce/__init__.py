"""The path of a message into the broker.

    stream -> service -> session -> admission -> deduplication -> journal -> commit end
           -> pending_acks

`service` opens sessions; `admission` decides which topics and batches are taken; `session` runs one
produce session from its start to its end; `pending_acks` keeps acks in order until the policy
holds; `producer_sessions` marks sessions that a newer one replaced; `intake` defines "takes
messages". This package does not import `consume`.
"""
