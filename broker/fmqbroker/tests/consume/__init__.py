"""Tests of `fmqbroker.consume`."""
