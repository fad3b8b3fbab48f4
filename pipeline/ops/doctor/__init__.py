"""Finds what is wrong with a cluster and its topics, and what to do. Changes nothing."""
