"""Tests of `fmqbroker.app`."""
