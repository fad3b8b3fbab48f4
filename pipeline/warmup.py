"""Compile the learner's kernels into their cache; ``python -m pipeline.warmup``.

A small learner with small windows goes through every room within a few dozen mixed records. With
a filled cache it takes about a second; without one about ten seconds, once per machine
(or per image: deploy/Dockerfile runs it).
"""

from pipeline.environment import prepare

ROWS = 64
WINDOW = 8


def warm_kernels() -> None:
    """Load what the cache has, compile what it lacks."""
    # Not at the top: the cache folder must be named before numba is imported.
    from dtgol_core.config import Config  # noqa: PLC0415
    from dtgol_core.learner import Learner  # noqa: PLC0415
    from pipeline.backtest import run_backtest  # noqa: PLC0415
    from pipeline.demo.patients import patients  # noqa: PLC0415

    small = {"graph": {"unverified": WINDOW, "verified": WINDOW}, "copula": {"window": WINDOW}}
    rows = [case.row for case in patients(ROWS, seed=0, end_ms=0).cases]
    learner = Learner(Config.read(small))
    run_backtest(rows, learner, 2 * WINDOW)
    Learner.restore(learner.config, learner.snapshot())


if __name__ == "__main__":
    prepare()
    warm_kernels()
