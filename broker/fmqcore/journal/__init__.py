"""The journal as bytes: control payloads, state, index, scan, recovery verdicts. Pure."""
