"""Tests of `fmqbroker.failover`."""
