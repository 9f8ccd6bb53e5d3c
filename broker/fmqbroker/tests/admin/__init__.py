"""Tests of `fmqbroker.admin`."""
