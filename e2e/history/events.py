"""The events of a run as seen from outside: the vocabulary of a history.

Each is a plain tuple: cheap to make, one JSON line each (`history.py`). `at_ms` is one clock for
all of a run (a simulator's world, a harness's own), `who` names a client (a consumer that starts
again has a new name), `readers` a consumer group, `record` the number in a value
(`traffic/values.py`). Records, offsets and positions are as in the broker: an offset counts records
of a queue, a position bytes of a journal.
"""

from e2e.history.client_events import (
    Acked,
    Committed,
    Committing,
    Delivered,
    Failed,
    Joined,
    Left,
    Nacked,
    OrderedDelivered,
    OrderedHandedOn,
    OrderedLowered,
    OrderedOpened,
    OrderedSent,
    OrderedSought,
    OrderedStored,
    OrderedUnsure,
    Seeking,
    Sent,
    Skipped,
    Sought,
    Stored,
    Unsure,
)
from e2e.history.cluster_events import (
    Down,
    Ends,
    Fault,
    Floor,
    Look,
    Phase,
    Refusal,
    Serves,
    Setup,
    State,
    Up,
)

Event = (
    Sent
    | Stored
    | Failed
    | Unsure
    | Joined
    | Left
    | Delivered
    | Acked
    | Nacked
    | Skipped
    | Committing
    | Committed
    | Seeking
    | Sought
    | OrderedOpened
    | OrderedHandedOn
    | OrderedLowered
    | OrderedSent
    | OrderedSought
    | OrderedStored
    | OrderedUnsure
    | OrderedDelivered
    | Setup
    | Serves
    | Look
    | Ends
    | State
    | Floor
    | Up
    | Down
    | Refusal
    | Fault
    | Phase
)
