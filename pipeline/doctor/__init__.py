"""Looks for what is wrong with a cluster and its topics, and says what to do. Changes nothing."""
