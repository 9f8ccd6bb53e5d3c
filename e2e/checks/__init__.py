"""The checks I1 to I13: pure functions over a history and the journals it left.

`verdict.judge` runs all of them.
"""
