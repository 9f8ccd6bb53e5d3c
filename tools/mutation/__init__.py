"""Plants small mistakes by rule, one at a time, and finds those that no test detects.

`operators.py` finds the places, `modules.py` lists the modules and the tests that count for each,
`running.py` runs those tests on a copy of the sources, `equivalent.py` reads the list of mutants
that change nothing, `report.py` writes the table of `docs/mutation.md`. `__main__.py` is
`make mutate`.
"""
