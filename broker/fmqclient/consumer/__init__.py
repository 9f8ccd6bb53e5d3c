"""The consumer package: sessions with brokers, deliveries to the program, acks and commits.

    session (one stream per broker) -> delivery_buffer -> message -> ack -> ack_tracker -> session

Read `consumer` first, then `session`, `delivery_buffer`, `ack_tracker`, `commits`.
"""
