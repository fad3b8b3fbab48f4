"""A polite end is an end: SIGTERM cleans up as Ctrl-C does, and neither is lost.

Python drops a KeyboardInterrupt that happens to be raised in a destructor or in the middle of an
import (it prints "Exception ignored" and goes on). So the wish is written down too, and whoever
waits in a loop asks with `heed`.
"""

import signal

_asked = False


def end_politely() -> None:
    """From now on both signals raise KeyboardInterrupt, so that every ``with`` block is left."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def heed() -> None:
    """Raise KeyboardInterrupt if one was asked for and lost."""
    if _asked:
        raise KeyboardInterrupt


def _interrupt(*_: object) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt
