r"""The path of a message out of the broker, and the progress of consumer groups.

    stream -> service -> registry -> group (in memory) -> delivery -> journal
                  \-> acks -> group -> offsets.store

Reading order: `service` (one session), `group` (one consumer group on one topic: members, queues,
messages in flight; `session` is one member), `registry` (all groups of this broker; `group_maker`
makes them, `progress_writer` stores what they acked), `delivery` (lease, read, send), then
`offsets`. `idle_groups`, `group_notes` and `topic_sweep` remove progress that is no longer needed.
"""
