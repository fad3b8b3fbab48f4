"""Compile the learner's kernels into their cache: ``python -m pipeline.runtime.warmup``.

A learner with small windows runs every kernel within a few dozen mixed records: the windows fill,
overflow and are refreshed whatever the real ones are. A wide learner follows, and an index of ids
that is merged, and the probe of the fingerprint. With a filled cache it takes about a second,
without one about 40 s of processor time, once per machine or image.
"""

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from pipeline.runtime.environment import prepare

RECORDS = 64
WINDOW = 8
WIDE_COLUMNS = 70


def compiled() -> bool:
    """Whether there are kernels in the cache."""
    return any(Path(os.environ.get("NUMBA_CACHE_DIR", ".")).rglob("*.nbi"))


def start_warm_up() -> Future[None]:
    """Warm up in a thread: there is much to wait for meanwhile, the cluster and the group."""
    pool = ThreadPoolExecutor(1, "kernels")
    warm = pool.submit(warm_up)
    pool.shutdown(wait=False)
    return warm


def warm_up() -> None:
    """Load what the cache has, compile what it lacks; says so where nothing was ever compiled."""
    if not compiled():
        sys.stderr.write("compiling once, about 40 s\n")
    # Not at the top: the cache folder must be named before numba is imported.
    from dtgol_core.config import Config  # noqa: PLC0415
    from dtgol_core.ids import CHUNK_IDS, HashIndex  # noqa: PLC0415
    from dtgol_core.learner import Learner  # noqa: PLC0415
    from pipeline.runtime.fingerprint import fingerprint  # noqa: PLC0415

    fingerprint()
    small = {"graph": {"unverified": WINDOW, "verified": WINDOW}, "copula": {"window": WINDOW}}
    config = Config.read(small)
    learner = Learner(config)
    for number in range(RECORDS):
        record = {
            "real": number * 0.37 % 1.0 if number % 3 else None,
            "whole": number % 5,
            "text": "abc"[number % 3],
            "flag": number % 2 == 0,
        }
        learner.observe(str(number), record, why=1)
        if number >= 2 * WINDOW:
            learner.learn(str(number - 2 * WINDOW), number % 2)
    learner.learn("0", 1)  # a correction
    restored = Learner.restore(config, learner.snapshot())
    restored.observe("restored", {"real": 0.5})
    wide = {f"column {number}": number * 0.37 % 1.0 for number in range(WIDE_COLUMNS)}
    for number in range(3):
        restored.observe(f"wide {number}", wide, why=1)
        restored.learn(f"wide {number}", number % 2)
    index = HashIndex()
    for number in range(2 * CHUNK_IDS):
        index.add(number, number, 0)


if __name__ == "__main__":
    prepare()
    warm_up()
