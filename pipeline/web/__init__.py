"""Health, readiness, status and metrics over HTTP, for machines."""
