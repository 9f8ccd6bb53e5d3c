"""The tests of the core draw many examples: see `patience.py`."""

from fmqcore.tests.patience import be_patient

be_patient()
