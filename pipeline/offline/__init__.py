"""The learner without a broker: files, backtests, comparison of methods."""
