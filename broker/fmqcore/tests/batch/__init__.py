"""Tests of `fmqcore.batch`."""
