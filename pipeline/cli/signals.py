"""SIGTERM ends a command as Ctrl-C does: every ``with`` block is left, and no signal is lost.

Python drops a KeyboardInterrupt that happens to be raised in a destructor or in the middle of an
import (it prints "Exception ignored" and goes on). So the signal is remembered too, and loops that
wait call `raise_if_stopped`.
"""

import signal

_asked = False


def stop_on_signals() -> None:
    """From now on both signals raise KeyboardInterrupt, so that every ``with`` block is left."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if one was asked for and lost."""
    if _asked:
        raise KeyboardInterrupt


def _interrupt(*_: object) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt
