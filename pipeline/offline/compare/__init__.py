"""`dtgol compare`: every method on every stream, prequential, and what the numbers say."""
