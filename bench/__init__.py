"""The benchmark: `python -m bench`, or `make bench`. What it measures is told in `cells.py`."""
