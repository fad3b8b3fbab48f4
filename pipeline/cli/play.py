"""`dtgol play`: a demo story sent to the topics of a cluster, round after round; starts nothing.

For a cluster where worker and evaluator already run (docker-compose.yml's producer). Every round
has ids and chance of its own, so the streams never end.
"""

import time

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, story_options
from pipeline.cli.signals import stop_on_signals

RECORDS = 3_000
ROUND_S = 300.0


@click.command(epilog=help_line("play"))
@click.argument("story", type=click.Choice(["patients", "sensors"]), default="sensors")
@cluster_options
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Stop after this many rounds.  [default: never]"
)
@story_options(
    RECORDS,
    ROUND_S,
    "Records in one round.",
    "In how many seconds one round is played.",
)
def play(
    target: Target, story: str, rounds: int | None, records: int, seconds: float, seed: int
) -> None:
    """Send a synthetic story of features and late labels to a cluster, over and over."""
    stop_on_signals()
    from itertools import count, islice

    from pipeline.client import FeatureProducer, LabelProducer
    from pipeline.offline.files.player import Player
    from pipeline.sandbox.demo import make_story
    from pipeline.sandbox.demo.play import send_all
    from pipeline.sandbox.demo.stories import with_id_prefix

    try:
        with (
            FeatureProducer(target.client, prefix=target.prefix) as features,
            LabelProducer(target.client, prefix=target.prefix) as labels,
        ):
            for number in islice(count(1), rounds):
                made = make_story(story, records, seed + number, time.time_ns() // 1_000_000)
                player = Player(features, labels)
                # Rounds start at different times, so their ids never meet again.
                send_all(with_id_prefix(made, f"{int(time.time())}-"), player, seconds)
                sent = player.finish()
                click.echo(f"round {number}: {sent.features} features, {sent.labels} labels")
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
