"""Some tests of the checks draw their examples: see `patience.py`."""

from fmqcore.tests.failover.patience import be_patient

be_patient()
