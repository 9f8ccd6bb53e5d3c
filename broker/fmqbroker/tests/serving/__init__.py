"""Tests of `fmqbroker.serving`."""
