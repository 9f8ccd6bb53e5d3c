"""Tests of `fmqcore.journal`."""
