"""Administration: topics, consumer groups and broker status, as typed values.

Admin (client) | OrderedAdmin (ordered) -> AdminCalls (calls) -> a broker
"""
