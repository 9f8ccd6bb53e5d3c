"""Parts without knowledge of messages: settings, timers, wake-ups, clocks, long work in slices.

Any room may import this package; it imports none of them.
"""
