"""Standard input and output, piece by piece, without blocking the loop."""
