"""Administration: topics, consumer groups, brokers' status, as typed values."""
