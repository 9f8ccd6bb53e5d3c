"""How results are printed: tables and messages for people, plain data for JSON."""
