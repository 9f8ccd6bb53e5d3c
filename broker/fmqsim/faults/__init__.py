"""The faults of a simulation and their times: drawn by seed, aimed at roles.

`table` lists the faults with their weights, `schedule` draws from it; `acts`, `power`,
`disk_damage`, `master_moves` and `senders` carry them out.
"""
