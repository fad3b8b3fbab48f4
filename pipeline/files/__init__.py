"""Files of records, CSV or JSONL: the same reader and masks for backtest, produce and bench."""
