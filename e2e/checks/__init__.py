"""The checks: pure functions over a history and the journals that it left (DESIGN §14, I1 to I12).

`verdict.judge` runs all of them.
"""
