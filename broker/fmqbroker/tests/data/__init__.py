"""Tests of `fmqbroker.data`."""
