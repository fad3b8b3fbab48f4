"""Files of records, CSV or JSONL, and playing them; for backtest, produce and compare."""
