"""Tests of `fmqcore.verify`."""
