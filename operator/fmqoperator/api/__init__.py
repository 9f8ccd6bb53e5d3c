"""The custom resources of `fmq.io/v1alpha1` as typed values: the one source of their schemas.

A file per resource (`group`, `topic`, `job`) over `base`; `parts` and `settings` are what their
specs share, `status` what groups report. `schema` builds the CRDs' schemas from the
types; `fmqoperator.crd` writes them.
"""
