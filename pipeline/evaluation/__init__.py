"""The evaluator of one partition: predictions paired with labels, and their scores."""
