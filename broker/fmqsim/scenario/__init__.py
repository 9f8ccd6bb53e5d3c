"""What one seed means: the cluster, its traffic and who else acts on it.

`scene` draws it (pure but dice), `world` builds and runs it on `hosts`; `operator_stand_in`,
`person` and `side_topic` act beside the faults; `fresh_seeds` draws seeds from the sources.
"""
