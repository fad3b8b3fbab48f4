"""Brokers for demos and tests, and the demo."""
