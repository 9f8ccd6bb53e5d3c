"""The benchmark: `python -m bench`, or `make bench`. `cells.py` lists what it measures."""
