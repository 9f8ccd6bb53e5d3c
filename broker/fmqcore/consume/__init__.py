"""The consume way's pure half (DESIGN §7): who holds a queue, what is in flight, what is done.

`ranges.py` sets of offset ranges; `inflight.py` one queue's progress for one consumer group;
`assign.py` queues among sessions; `merge.py` progress entries by version; `sidefile.py` the bytes
of the taker's side journal. Retry is state over offset ranges, never a rewritten message.
"""
