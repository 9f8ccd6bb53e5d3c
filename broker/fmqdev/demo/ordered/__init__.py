"""`fmq demo --ordered`: a change log copied over a chain of three groups while brokers die in turn.

`changes` makes the source, `copying` sends its change log and applies it to the target, `run` plays
the story, `stored` looks into journals from outside, `verdict` judges, `report` prints. May import
what `fmqdev.demo` may.
"""
