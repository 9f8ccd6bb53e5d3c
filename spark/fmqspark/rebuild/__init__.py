"""`rebuild-index`: recreate the index files of full segments from the journal's headers."""
