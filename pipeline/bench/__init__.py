"""`dtgol bench`: every method on every stream, prequential, and what the numbers say."""
