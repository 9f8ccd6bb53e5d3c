"""Pure: consume."""
