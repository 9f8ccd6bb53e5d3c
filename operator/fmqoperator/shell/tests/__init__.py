"""Tests of the operator's shell."""
