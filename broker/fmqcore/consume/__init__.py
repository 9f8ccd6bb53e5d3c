"""The pure half of the consume path: queue holders, deliveries, progress.

`ranges` has sets of offset ranges; `in_flight` one queue's progress for one consumer group;
`assignment` queues among sessions; `offsets` progress entries. Retry is state over offset ranges,
never a rewritten message.
"""
