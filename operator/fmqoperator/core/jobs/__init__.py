"""BrokerJobs: what a job is to do next, its objects, and how it ended."""
