"""Commands for operators: they inspect a cluster, and decide about single records."""
