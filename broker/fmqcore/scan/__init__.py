"""Scanning many segments for many readers: packed headers, columns, digests. Pure."""
