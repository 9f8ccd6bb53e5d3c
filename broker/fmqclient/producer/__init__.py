"""The producer package: records in, acknowledged batches out.

    send -> accumulator -> topic_buffers -> queue_buffer -> sender (one stream per broker)
                  buffer_waiters                error_policy (retry, reroute, fail)

Read `producer` first, then `accumulator`, `queue_buffer`, `sender`. `ordered`, `ordered_state` and
`ordered_values` are the ordered producer.
"""
