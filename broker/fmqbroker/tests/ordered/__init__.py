"""Tests of `fmqbroker.ordered`."""
