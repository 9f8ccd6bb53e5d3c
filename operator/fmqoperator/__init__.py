r"""The operator: a custom resource becomes a group of brokers.

    api     the custom resources as typed values; their schemas and CRDs
    core    pure: observation -> facts -> plan (actions) and status
    shell   observe, ask the core, act, write the status

    shell.keeper -> shell.observe -> core.observation -> core.plan -> core.actions -> shell.apply
                                                      \-> core.status -> shell

The core reads no clock and does no I/O (import-linter checks it). Reading order: `api.group`,
`core.observation`, `core.facts`, `core.plan`, `core.steps`, then `shell.groups`.
"""
