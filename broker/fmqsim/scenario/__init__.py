"""The scenario of a seed: the cluster, its traffic, and other actors.

`scene` draws it (pure except for its dice), `world` builds and runs it on `hosts`;
`operator_stand_in`, `person` and `side_topic` act beside the faults; `fresh_seeds` draws seeds from
the sources.
"""
