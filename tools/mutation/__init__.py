"""Plants small mistakes by rule, one at a time, and finds those that no test detects.

`operators.py` finds the places, `modules.toml` lists the modules and the tests that count for each,
`serving.py` runs those tests in forks of one process, on a copy of the sources (`running.py`),
`reach.py` records which tests call what, `equivalent.py` reads the list of mutants that change
nothing, `report.py` writes `RESULTS.md`. `__main__.py` is `make mutate`.
"""
