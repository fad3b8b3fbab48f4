"""The demo: synthetic streams, the processes that answer them, and what is shown of it."""
