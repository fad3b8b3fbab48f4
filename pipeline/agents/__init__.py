"""Receive, call, hand over: one agent per topic, no arithmetic."""
