"""The real adapters of the five ports of `fmqport`, chosen where a process starts.

    grpc        transport, the one door to gRPC
    zookeeper   coordination, the one door to kazoo; an embedded server for one machine
    disk        files below one data directory, the writer threads
    process     lifecycle, clock, logs, child processes
    http        pages for probes and metrics

Each passes its port's conformance suite (`fmqport.tests`). Shells do not import this package;
`fmqbroker.app.main`, `fmqclient.client` and the command line choose from it.
"""
