"""`dtgol demo`: broker, topics, worker, evaluator and a made-up stream, from nothing, by itself."""

import contextlib
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.ending import end_politely, heed

if TYPE_CHECKING:
    from pipeline.brokers import Broker
    from pipeline.demo.stage import Service
    from pipeline.demo.stories import Story

RECORDS = {"patients": 2_400, "sensors": 3_000}
PLAY_S = 75.0
"""With the start and the last labels the whole demo takes less than two minutes."""
KERNELS_S = 300.0


@click.command(epilog=codes("demo"))
@click.argument("story", type=click.Choice(list(RECORDS)), default="patients")
@click.option(
    "--keep", is_flag=True, help="Keep everything running when the story has ended, until Ctrl-C."
)
@click.option(
    "--broker",
    "kind",
    type=click.Choice(["auto", "given", "docker", "local", "embedded"]),
    default="embedded",
    show_default=True,
    help="embedded: in this process, needs nothing else. local: Apache Kafka, by Maven and Java. "
    "docker: Apache Kafka in a container. auto: the first of docker, local and embedded that can "
    "be had. given: a cluster of yours (KAFKA_BOOTSTRAP_SERVERS); topics get a random prefix and "
    "are removed.",
)
@click.option(
    "--records",
    type=click.IntRange(min=20),
    help="Records to play.  [default: patients 2400, sensors 3000]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=5),
    default=PLAY_S,
    show_default=True,
    help="In how many seconds the days of the story are played.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The same seed gives the same records.",
)
def demo(story: str, keep: bool, kind: Any, records: int | None, seconds: float, seed: int) -> None:
    """Play a story through the whole pipeline and show how it goes.

    patients: rehabilitation after operations; a third of the values is missing, labels come a
    week late, midway the hospital changes. sensors: a fleet of machines, one stream each.
    """
    end_politely()
    from pipeline.brokers import NoBrokerError
    from pipeline.client import ClusterError, DeliveryError
    from pipeline.demo.stage import StageError
    from pipeline.demo.tellers import tell
    from pipeline.operators.topics_admin import AdminError

    count = records or RECORDS[story]
    try:
        with ExitStack() as held:
            told = tell(story, count, seed, time.time_ns() // 1_000_000)
            complete = _run(held, told, kind, seconds, keep)
    except (NoBrokerError, StageError, AdminError, ClusterError, DeliveryError) as error:
        raise BadInput(str(error)) from None
    except KeyboardInterrupt:
        click.echo("\nstopped; everything it started is gone", err=True)
        raise SystemExit(130) from None
    raise SystemExit(0 if complete else 1)


def _run(held: ExitStack, story: "Story", kind: Any, seconds: float, keep: bool) -> bool:
    from pipeline.brokers import open_broker
    from pipeline.demo.play import play
    from pipeline.demo.screen import Screen, Step, summary
    from pipeline.demo.stage import new_prefix, services_on, topics_on

    click.echo(f"{story.name}: {story.title}")
    _kernels(Step("compiling the learner's kernels (about 10 s the first time, then cached)"))
    home = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="dtgol-demo-")))
    step = Step(f"starting the broker ({kind})")
    broker = held.enter_context(open_broker(kind, client=_client(kind)))
    prefix = new_prefix()
    held.enter_context(topics_on(broker, prefix))
    step.done(f"{broker.version or broker.kind} at {broker.bootstrap}")

    def started(service: "Service") -> None:
        step = Step(f"starting the {service.role}")

        def still(why: str) -> None:
            heed()
            step.still(why)

        service.await_ready(still)
        step.done(f"{service.url}/status")

    services = held.enter_context(services_on(broker, prefix, home, started))
    click.echo(f"playing {story.days:.0f} days in {seconds:.0f} s")
    with Screen(story) as screen:

        def show(*seen: Any) -> None:
            heed()
            for service in services:
                service.check()
            screen.show(*seen)

        played = play(story, broker.config, prefix, seconds, show)
    summary(story, played)
    if played.tally.unanswered:
        click.echo(f"{played.tally.unanswered} records were NOT answered", err=True)
    if keep:
        _stay(broker, prefix, services)
    return not played.tally.unanswered


def _kernels(step: Any) -> None:
    """In a process of its own: the worker will find them in the cache, and we can tell the time."""
    child = subprocess.Popen([sys.executable, "-m", "pipeline.warmup"], stderr=subprocess.PIPE)
    try:
        while child.poll() is None:
            heed()
            step.still()
            time.sleep(0.1)
            if step.seconds > KERNELS_S:
                raise BadInput(f"the kernels were not compiled within {KERNELS_S:g} s")
        _, said = child.communicate()
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise BadInput(f"the kernels cannot be compiled:\n{said.decode(errors='replace')[-1500:]}")
    step.done()


def _client(kind: str) -> dict[str, str] | None:
    """The settings of a given cluster, security included; nobody else needs any."""
    if kind != "given":
        return None
    from pipeline.cli.connection import open_target

    return open_target(None, None, None, ()).client


def _stay(broker: "Broker", prefix: str, services: "list[Service]") -> None:
    click.echo("\nEverything is still running; Ctrl-C ends it. In another terminal:")
    where = f"--bootstrap {broker.bootstrap} --prefix {prefix}"
    click.echo(f"  dtgol watch {where}\n  dtgol produce FILE.csv {where}\n  dtgol doctor {where}")
    for service in services:
        click.echo(f"  {service.role}: {service.url}/status, /metrics, /readyz")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            heed()
            for service in services:
                service.check()
            time.sleep(1)
    click.echo("\nending everything")
