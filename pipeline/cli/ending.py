"""A polite end is an end: SIGTERM cleans up as Ctrl-C does."""

import signal


def end_politely() -> None:
    """From now on SIGTERM raises KeyboardInterrupt, so that every ``with`` block is left."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
