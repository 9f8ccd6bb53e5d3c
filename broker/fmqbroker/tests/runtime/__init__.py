"""Tests of `fmqbroker.runtime`."""
