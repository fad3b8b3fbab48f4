"""Who we are to the cluster, what we may do there, and what is said when we may not."""
