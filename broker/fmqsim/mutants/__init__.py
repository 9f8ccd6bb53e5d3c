"""A test of the tests: mistakes planted one at a time, each of which our checks must catch.

`mutant.py` says what one is, `journal.py`, `replicating.py`, `deciding.py`, `serving.py`,
`sending.py` hold them, `hunt.py` plants one in a copy of the sources and runs seeds until something
catches it, `__main__.py` is `make mutants`. Nothing here is imported by anything else.
"""
