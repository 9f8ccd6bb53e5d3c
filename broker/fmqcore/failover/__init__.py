"""Decide who serves a group: evidence in, at most one step out. Pure.

    evidence -> machine.decide -> table (state x input -> step), guards -> transitions (new states)

Read `evidence`, then `table`: a row per step with its guards. `guards` and `switchover_guards` are
the conditions, `transitions` the new states, `context` what one decision sees, `term_rules` the
small rules of grants and claims.
"""
