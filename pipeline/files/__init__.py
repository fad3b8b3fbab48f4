"""Files of records, CSV or JSONL: one reader for backtest, produce and bench; and playing them."""
