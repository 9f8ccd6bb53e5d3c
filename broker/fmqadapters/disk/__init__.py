"""Adapter of the disk port: files below one data directory, written by their own threads."""
