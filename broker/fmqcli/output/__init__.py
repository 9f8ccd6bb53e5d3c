"""How results look: tables and messages for people, plain data for JSON."""
