r"""Failover: who is master, who serves reads, and how that changes.

    evidence -> fmqcore.failover.decide (pure) -> transitions (one step) -> again
        \_____________________ loop ______________________/

`loop` gathers the `evidence`, asks the pure machine for one step and runs it. `transitions` holds
the steps that open, hand over and end a term, each with a fixed order of effects. Only `app`
imports this package.
"""
