"""Tests of `fmqbroker.journal`."""
