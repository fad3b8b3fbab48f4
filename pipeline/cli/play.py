"""`dtgol play`: a demo story sent to the topics of a cluster, round after round; starts nothing.

For a cluster where worker and evaluator already run (docker-compose.yml's producer). Every round
has ids and chance of its own, so the streams never end.
"""

import time

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, cluster_options
from pipeline.cli.ending import end_politely

RECORDS = 3_000
ROUND_S = 300.0


@click.command(epilog=codes("play"))
@click.argument("story", type=click.Choice(["patients", "sensors"]), default="sensors")
@cluster_options
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Stop after this many rounds.  [default: never]"
)
@click.option(
    "--records",
    type=click.IntRange(min=20),
    default=RECORDS,
    show_default=True,
    help="Records in one round.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=ROUND_S,
    show_default=True,
    help="In how many seconds one round is played.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The same seed gives the same records.",
)
def play(
    target: Target, story: str, rounds: int | None, records: int, seconds: float, seed: int
) -> None:
    """Send a synthetic story of features and late labels to a cluster, over and over."""
    end_politely()
    from itertools import count, islice

    from pipeline.client import ClusterError, DeliveryError, FeatureProducer, LabelProducer
    from pipeline.demo.play import send_all
    from pipeline.demo.stories import renamed
    from pipeline.demo.tellers import tell
    from pipeline.files.player import Player

    try:
        with (
            FeatureProducer(target.client, prefix=target.prefix) as features,
            LabelProducer(target.client, prefix=target.prefix) as labels,
        ):
            for number in islice(count(1), rounds):
                told = tell(story, records, seed + number, time.time_ns() // 1_000_000)
                player = Player(features, labels)
                # Rounds start at different times, so their names never meet again.
                send_all(renamed(told, f"{int(time.time())}-"), player, seconds)
                sent = player.finish()
                click.echo(f"round {number}: {sent.features} features, {sent.labels} labels")
    except (ClusterError, DeliveryError) as error:
        raise BadInput(str(error)) from None
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
