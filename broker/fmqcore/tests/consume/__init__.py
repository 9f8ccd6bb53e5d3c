"""Tests of `fmqcore.consume`."""
