"""Tests of `fmqcore.scan`."""
