"""Tests of `fmqcore.replication`."""
