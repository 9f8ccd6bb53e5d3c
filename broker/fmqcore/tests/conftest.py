"""The tests of the core draw many examples: see `failover/patience.py`."""

from fmqcore.tests.failover.patience import be_patient

be_patient()
