"""The consume path's pure half (DESIGN §7): who holds a queue, what is in flight, what is done.

`ranges` sets of offset ranges; `in_flight` one queue's progress for one consumer group;
`assignment` queues among sessions; `offsets` progress entries. Retry is state over offset ranges,
never a rewritten message.
"""
