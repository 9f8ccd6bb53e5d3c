"""Administration: topics, consumer groups and broker status, as typed values."""
