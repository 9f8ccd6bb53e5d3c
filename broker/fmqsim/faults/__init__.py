"""The faults of a simulation and their times: drawn by seed, aimed at roles.

`table` lists the faults with their weights, `schedule` draws from it; `acts`, `power`,
`disk_damage` and `master_moves` carry them out.
"""
