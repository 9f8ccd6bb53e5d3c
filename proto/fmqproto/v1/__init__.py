"""Version 1 of the wire: fields are only ever added."""
