"""The `fmq` command.

    main            the entry point: mounts the commands
    commands        one file per command: options, calls, exit status
    common          shared by all: the client, the loop, results, exit codes
    output          tables and formats for people, JSON for programs
    stdio           standard input and output without blocking the loop
    cluster_file, cluster_registry      `fmq cluster apply`: the file, and ZooKeeper
    journal_dump    the walk behind `fmq journal dump`

Depends on `fmqclient`, `fmqdev` and `fmqinspect`; loads the broker and the jobs only when a command
needs them.
"""
