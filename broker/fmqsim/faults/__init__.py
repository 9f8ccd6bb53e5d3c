"""What goes wrong in a simulation, and when: by seed, following roles.

`table` lists the faults with their weights, `schedule` draws from it; `acts`, `power`,
`disk_damage` and `master_moves` carry them out.
"""
