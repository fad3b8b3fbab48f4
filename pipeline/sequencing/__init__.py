"""Features and labels of one partition put into one order: its journal."""
