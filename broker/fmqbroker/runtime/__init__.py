"""Parts without knowledge of messages: settings, timers, wake-ups, clocks, slices of work.

Any other package may import this one; it imports none of them.
"""
