"""Connections to brokers, routes of topics, and supervision of the client's tasks.

`connections` dials brokers and finds one that answers, `routes` knows which group holds which
queues, `tasks` ends every waiter when an inner task dies, `loop_turns` gives the loop its turns.
"""
