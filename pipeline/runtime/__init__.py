"""What worker and evaluator share at run time."""
