"""A broker of this folder's own that notices silent members soon; trials; the table at the end."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.warmup import warm_up
from pipeline.sandbox.brokers import Broker, NoBrokerError
from pipeline.sandbox.brokers.local import ClusterConfig, LocalCluster
from pipeline.sandbox.brokers.server_properties import PLAINTEXT, Listener
from tests.faults.rows import TABLE_VARIABLE, Row, as_markdown, as_text
from tests.faults.trial import Plan, Trial
from tests.support.brokers import mark_folder
from tests.support.proxy import Proxy
from tests.support.stage import Stage

SESSION_MS = 3_000
PROPERTIES = {
    "group.min.session.timeout.ms": "1000",
    # A killed broker may come back when the controller has missed it: after 9 s by default.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
TIMEOUTS: dict[str, object] = {
    "kafka.session_timeout_ms": SESSION_MS,
    "kafka.heartbeat_ms": 500,
}
SEEDS, SEEDS_LONG = (1,), (11, 12, 13, 14)
ROWS: pytest.StashKey[list[Row]] = pytest.StashKey()
FIGURES: pytest.StashKey[list[str]] = pytest.StashKey()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_folder(items, __file__)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every trial for every seed (the one asked for, a fixed one, or several) and every store."""
    long = metafunc.config.getoption("--long")
    if "seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("--fault-seed")
        seeds = SEEDS_LONG if long else SEEDS
        metafunc.parametrize("seed", [given] if given is not None else seeds)
    stores = metafunc.definition.get_closest_marker("stores")
    if stores is not None:
        more = [stores.kwargs["long"]] if long and "long" in stores.kwargs else []
        metafunc.parametrize("store", [*stores.args, *more])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """A failure says how to see it again."""
    report = yield
    seed = getattr(item, "callspec", None) and item.callspec.params.get("seed")  # type: ignore[attr-defined]
    if report.failed and seed is not None:
        test = item.nodeid.partition("[")[0]
        report.sections.append(("seed", f"again with: pytest {test} --fault-seed={seed}"))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a test process of xdist: hand rows and figures to the one that prints them."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["rows"] = [asdict(row) for row in session.config.stash.get(ROWS, [])]
        output["figures"] = session.config.stash.get(FIGURES, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that prints: collect what a test process has handed over."""
    output = getattr(node, "workeroutput", {})
    stash = node.config.stash
    stash.setdefault(ROWS, []).extend(Row(**row) for row in output.get("rows", []))
    stash.setdefault(FIGURES, []).extend(output.get("figures", []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    figures = config.stash.get(FIGURES, [])
    if figures:
        terminalreporter.section("load")
        terminalreporter.write_line("\n".join(figures))
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(as_text(rows))
    if os.environ.get(TABLE_VARIABLE):
        Path(os.environ[TABLE_VARIABLE]).write_text(as_markdown(rows))


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """The kernels, on disk: else the first workers of a fresh checkout compile them for minutes."""
    warm_up()


@pytest.fixture(scope="session")
def proxy() -> Iterator[Proxy]:
    """A second way to the broker, for who is to be cut off (`cluster.bootstrap("PROXIED")`)."""
    with Proxy() as opened:
        yield opened


@pytest.fixture(scope="session")
def cluster(proxy: Proxy) -> Iterator[LocalCluster]:
    """One local broker with short group sessions; real Kafka, ended with the run."""
    listeners = (PLAINTEXT, Listener("PROXIED", "PLAINTEXT", (proxy.port,)))
    try:
        with LocalCluster(ClusterConfig(properties=PROPERTIES, listeners=listeners)) as opened:
            proxy.lead_to(opened.port(1, "PROXIED"))
            yield opened
    except NoBrokerError as refusal:
        pytest.skip(f"local: {refusal}")


@dataclass
class Trials:
    """Opens trials for one test, with a seed, and keeps their rows."""

    broker: Broker
    seed: int
    long: bool
    folder: Path
    rows: list[Row]
    opened: int = field(default=0)

    @property
    def chance(self) -> random.Random:
        """Chance for what is decided before a trial is open."""
        return random.Random(self.seed)

    def rounds(self, short: int, long: int) -> int:
        """How often, in CI and in the long run."""
        return long if self.long else short

    @contextmanager
    def open(self, plan: Plan, broker: Broker | None = None) -> Iterator[Trial]:
        """A trial under way; its results are checked when the block is left."""
        self.opened += 1
        folder = self.folder / f"trial-{self.opened}"
        folder.mkdir()
        if self.long:
            plan = replace(plan, flow=replace(plan.flow, records_min=3 * plan.flow.records_min))
        settings = {**TIMEOUTS, "snapshots.store": plan.store, **plan.settings}
        stage = Stage(
            broker or self.broker,
            f"faults-{uuid.uuid4().hex[:8]}-",
            folder,
            plan.partitions,
            plan.config,
            plan.replication,
            settings,
        )
        trial = Trial(stage, plan, self.seed)
        try:
            with trial:
                yield trial
        finally:
            self.rows.extend(trial.rows)
        for row in trial.rows:
            row.check()


@pytest.fixture
def trials(
    cluster: LocalCluster, seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> Trials:
    """Trials on this folder's broker."""
    rows = request.config.stash.setdefault(ROWS, [])
    return Trials(cluster.broker, seed, request.config.getoption("--long"), tmp_path, rows)
