"""Sequencer, learner, evaluator: receive, call, hand over; no arithmetic."""
