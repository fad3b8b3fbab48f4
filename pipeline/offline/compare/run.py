"""Jobs -> outcomes: in processes of their own, each kept on disk as soon as it is there.

A run that is stopped goes on where it was: an outcome is found under its job's key, and is written
to a new name first, so that half of one is never read.
"""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from time import process_time

import numpy as np

from dtgol_core.streams import Delays, label_delays
from dtgol_core.types import ExpertAnswer, FeatureValues, FloatArray, Forecast, Rejection
from pipeline.offline.backtest import OnlineLearner, run_backtest
from pipeline.offline.compare.jobs import Job
from pipeline.offline.compare.methods import choose
from pipeline.offline.compare.scores import Outcome, judge
from pipeline.offline.compare.sources import StreamSource, rows_of
from pipeline.runtime.environment import prepare

WARM_UP_ROWS = 64
_warm: set[str] = set()


class RunStore:
    """Outcomes in a folder, one small JSON file per job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, job: Job) -> Outcome | None:
        """The outcome of a job that was run before."""
        try:
            text = self._path(job).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return Outcome.read(json.loads(text))

    def keep(self, job: Job, outcome: Outcome) -> None:
        """Write an outcome; the name appears only when all of it is there."""
        path = self._path(job)
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
        fresh.replace(path)

    def _path(self, job: Job) -> Path:
        return self._folder / job.method / f"{job.key}.json"


def run_all(
    jobs: Sequence[Job],
    store: RunStore,
    processes: int,
    progress: Callable[[int], None] | None = None,
) -> dict[Job, Outcome]:
    """The outcomes of all jobs, from the store or from a run.

    `progress` is called with the processor seconds, by their estimate, of the jobs done; found
    ones do not count.
    """
    found = {job: store.find(job) for job in jobs}
    outcomes = {job: outcome for job, outcome in found.items() if outcome is not None}
    todo = [job for job in jobs if job not in outcomes]
    done = 0.0

    def finished(job: Job, outcome: Outcome) -> None:
        nonlocal done
        store.keep(job, outcome)
        outcomes[job] = outcome
        done += job.seconds_estimate
        if progress is not None:
            progress(round(done))

    if processes == 1:
        for job in todo:
            finished(job, run(job))
    elif todo:
        _run_in_processes(todo, processes, finished)
    return {job: outcomes[job] for job in jobs}


def run(job: Job) -> Outcome:
    """One job, in this process. Its time is the processor's, without compiling.

    By the clock on the wall a run beside others would be as slow as they make it.
    """
    rows = rows_of(job.source, job.missing, job.seed)
    (method,) = choose([job.method])
    if method.name not in _warm:
        run_backtest(rows[:WARM_UP_ROWS], method.make(0, 16), 16)
        _warm.add(method.name)
    learner, delays = Recorded(method.make(job.seed, job.delay)), _delays(job, len(rows))
    start = process_time()
    result = run_backtest(rows, learner, delays)
    result = replace(result, seconds=process_time() - start)
    naive = _naive(job.source, job.missing, job.delay, job.late, job.seed)
    return judge(result, job.delay, job.source.change, naive, learner.experts)


class Recorded:
    """A learner whose experts' answers are kept."""

    def __init__(self, learner: OnlineLearner) -> None:
        self._learner = learner
        self.learn = learner.learn
        self.experts: list[Mapping[str, ExpertAnswer]] = []
        """Of every answered row; empty for a learner without experts."""

    def observe(self, id: str, x: FeatureValues) -> Forecast | Rejection:
        """As the learner does."""
        forecast = self._learner.observe(id, x)
        if isinstance(forecast, Forecast) and forecast.experts:
            self.experts.append(forecast.experts)
        return forecast


@lru_cache(maxsize=2)
def _naive(source: StreamSource, missing: str, delay: int, late: Delays, seed: int) -> FloatArray:
    """What naive answers; kept for the other methods on the same rows."""
    rows = rows_of(source, missing, seed)
    (method,) = choose(["naive"])
    delays = _delays(Job(source, missing, delay, seed, "naive", "", late), len(rows))
    result = run_backtest(rows, method.make(seed, delay), delays)
    return np.array([each.p for each in result.predictions])


def _delays(job: Job, rows: int) -> int | list[int]:
    """One delay, or one for each row; every method meets the same ones."""
    if job.late == "fixed":
        return job.delay
    generator = np.random.default_rng([job.seed, job.delay])
    drawn: list[int] = label_delays(rows, job.delay, job.late, generator).tolist()
    return drawn


def _start_child() -> None:
    """In a new process: Ctrl-C, which a terminal sends to all of them, ends it at once and without
    a word. As an exception it would only fail the run, and the next one would begin."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    prepare()


def _run_in_processes(
    todo: Sequence[Job], processes: int, finished: Callable[[Job, Outcome], None]
) -> None:
    """A few jobs per process are handed out at a time, so that an interrupt ends soon."""
    context = multiprocessing.get_context("spawn")
    waiting = iter(todo)
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_start_child) as pool:
        running: dict[Future[Outcome], Job] = {}
        try:
            while True:
                while len(running) < 2 * processes and (job := next(waiting, None)) is not None:
                    running[pool.submit(run, job)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    finished(running.pop(future), future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def whole_seeds(jobs: Sequence[Job], store: RunStore) -> dict[Job, Outcome]:
    """What is there already, without half a seed of any method on any family of streams: means
    would not compare."""
    found = {job: store.find(job) for job in jobs}

    def part(job: Job) -> tuple[str, str, int]:
        return job.method, job.source.family, job.seed

    halves = {part(job) for job, outcome in found.items() if outcome is None}
    return {
        job: outcome
        for job, outcome in found.items()
        if outcome is not None and part(job) not in halves
    }


def remaining_seconds(jobs: Sequence[Job], store: RunStore) -> float:
    """Processor time, by its estimate, of the jobs that have no outcome yet."""
    return sum(job.seconds_estimate for job in jobs if store.find(job) is None)
