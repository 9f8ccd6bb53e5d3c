"""Tests of `fmqbroker.replication`."""
