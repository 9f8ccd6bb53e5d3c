"""Tests of `fmqbroker.cluster`."""
