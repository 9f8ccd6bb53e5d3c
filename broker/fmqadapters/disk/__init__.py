"""Adapter of the disk port: files below one data directory, written by threads of their own."""
