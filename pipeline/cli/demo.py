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

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import open_target, story_options
from pipeline.cli.signals import raise_if_stopped, stop_on_signals
from pipeline.errors import DemoError

if TYPE_CHECKING:
    from pipeline.sandbox.brokers import Broker
    from pipeline.sandbox.demo.services import Service
    from pipeline.sandbox.demo.stories import Story

RECORDS = {"patients": 2_400, "sensors": 3_000}
PLAY_S = 75.0
"""With the start and the last labels the whole demo takes less than two minutes."""
KERNELS_S = 300.0


@click.command(epilog=help_line("demo"))
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
@story_options(
    None,
    PLAY_S,
    "Records to play.  [default: patients 2400, sensors 3000]",
    "In how many seconds the days of the story are played.",
)
def demo(story: str, keep: bool, kind: Any, records: int | None, seconds: float, seed: int) -> None:
    """Play a story through the whole pipeline and show how it goes.

    patients: rehabilitation after operations; what a complicated recovery looks like moves day by
    day and jumps midway, a fifth of the values is missing, labels come a week late. sensors: a
    fleet of machines, one stream each; midway the concept changes and the records hardly show it.
    """
    stop_on_signals()
    from pipeline.sandbox.demo import make_story

    count = records or RECORDS[story]
    try:
        with ExitStack() as stack:
            made = make_story(story, count, seed, time.time_ns() // 1_000_000)
            complete = _run(stack, made, kind, seconds, keep)
    except KeyboardInterrupt:
        click.echo("\nstopped; everything it started has ended", err=True)
        raise SystemExit(130) from None
    raise SystemExit(0 if complete else 1)


def _run(stack: ExitStack, story: "Story", kind: Any, seconds: float, keep: bool) -> bool:
    from pipeline.sandbox.brokers import open_broker
    from pipeline.sandbox.demo.play import play
    from pipeline.sandbox.demo.screen import Screen, Step, summary
    from pipeline.sandbox.demo.services import hold_port, new_prefix, services_on, topics_on

    click.echo(f"{story.name}: {story.title}")
    page = stack.enter_context(hold_port())
    until = "until Ctrl-C" if keep else "until the end; --keep lets it stay"
    click.echo(f"live page: http://127.0.0.1:{page.getsockname()[1]}/ ({until})")
    _kernels(Step("compiling the learner's kernels (about 40 s the first time, then cached)"))
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dtgol-demo-")))
    step = Step(f"starting the broker ({kind})")
    broker = stack.enter_context(
        open_broker(kind, client=open_target().client if kind == "given" else None)
    )
    prefix = new_prefix()
    stack.enter_context(topics_on(broker, prefix))
    step.done(f"{broker.version or broker.kind} at {broker.bootstrap}")

    def started(service: "Service") -> None:
        step = Step(f"starting the {service.role}")

        def still(why: str) -> None:
            raise_if_stopped()
            step.still(why)

        service.await_ready(still)
        step.done(f"{service.url}/")

    services = stack.enter_context(services_on(broker, prefix, home, page, started))
    click.echo(f"playing {story.days:.0f} days in {seconds:.0f} s")
    with Screen(story) as screen:

        def show(*seen: Any) -> None:
            raise_if_stopped()
            for service in services:
                service.check()
            screen.show(*seen)

        played = play(story, broker.config, prefix, seconds, show)
    summary(story, played)
    if played.results.unanswered:
        click.echo(f"{played.results.unanswered} records were NOT answered", err=True)
    if keep:
        _stay(broker, prefix, services)
    return not played.results.unanswered


def _kernels(step: Any) -> None:
    """Compile them in a child process: the worker finds them in the cache, and we show progress."""
    child = subprocess.Popen(
        [sys.executable, "-m", "pipeline.runtime.warmup"], stderr=subprocess.PIPE
    )
    try:
        while child.poll() is None:
            raise_if_stopped()
            step.still()
            time.sleep(0.1)
            if step.seconds > KERNELS_S:
                raise DemoError(f"the kernels were not compiled within {KERNELS_S:g} s")
        _, output = child.communicate()
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise DemoError(
            f"the kernels cannot be compiled:\n{output.decode(errors='replace')[-1500:]}"
        )
    step.done()


def _stay(broker: "Broker", prefix: str, services: "list[Service]") -> None:
    click.echo("\nEverything is still running; Ctrl-C ends it. In another terminal:")
    where = f"--bootstrap {broker.bootstrap} --prefix {prefix}"
    click.echo(f"  dtgol watch {where}\n  dtgol produce FILE.csv {where}\n  dtgol doctor {where}")
    for service in services:
        click.echo(f"  {service.role}: {service.url}/ (live page), /status, /metrics, /readyz")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            raise_if_stopped()
            for service in services:
                service.check()
            time.sleep(1)
    click.echo("\nending everything")
