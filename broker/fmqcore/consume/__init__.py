"""The consume way's pure half (DESIGN §7): who holds a queue, what is in flight, what is done.

`ranges.py` sets of offset ranges; `inflight.py` one queue's progress for one consumer group;
`assign.py` queues among sessions; `merge.py` tables of progress entries; `record.py` and
`sidefile.py` the bytes of a taker's record in the group's state and of its side journal. Retry is
state over offset ranges, never a rewritten message.
"""
