"""Tests of `fmqbroker.produce`."""
