"""`dtgol doctor`: what is wrong with a cluster, its topics and its producers, and what to do."""

from dataclasses import asdict

import click

from pipeline.cli.exit_codes import help_line
from pipeline.cli.options import Target, cluster_options, echo_json, json_option
from pipeline.cli.progress import status


@click.command(epilog=help_line("doctor"))
@cluster_options
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=1_000,
    show_default=True,
    help="Newest records of each partition to look at.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Measure the brokers' clock too: makes a topic doctor-… and removes it.",
)
@click.option(
    "--web",
    multiple=True,
    metavar="HOST:PORT",
    help="Ask this worker or evaluator too whether it is ready and how full its bounds are; may be "
    "given again. The token is that of web.token_file.",
)
@json_option
def doctor(target: Target, samples: int, probe: bool, web: tuple[str, ...], as_json: bool) -> None:
    """Check broker, topics, members, keys, clocks, dead letters, snapshots and lag.

    Ends with a verdict and what to do.

    Nothing is changed, unless by --probe. Of sampled records only key, stream and id are looked
    at, and nothing of them is shown.
    """
    from pipeline.evaluation.pairs import PAIR_BYTES
    from pipeline.kafka.auth import read_secret
    from pipeline.ops.doctor.checks import ClusterTarget, run_checks
    from pipeline.ops.doctor.findings import Status, verdict
    from pipeline.snapshots import make_store

    settings = target.settings
    named = settings.web.token_file
    token = read_secret("web.token_file", named) if named and web else None
    cluster = ClusterTarget(
        target.client,
        target.prefix,
        target.groups,
        target.committed_at_once,
        settings.snapshots.every_records,
        settings.snapshots.every_ms,
        make_store(settings, target.client, "worker"),
        web,
        token,
        settings.group("worker"),
        make_store(settings, target.client, "evaluator"),
        settings.evaluator.pairs_bytes_max // PAIR_BYTES,
        settings.worker.journal_ahead_max,
    )
    findings = []
    with status() as show:
        for finding in run_checks(cluster, samples, probe, show):
            findings.append(finding)
            show("")
            if not as_json:
                advice = f"\n         → {finding.advice}" if finding.advice else ""
                click.echo(f"{finding.status:8} {finding.check}: {finding.text}{advice}")
    healthy = all(each.status is not Status.PROBLEM for each in findings)
    if as_json:
        listed = [asdict(each) for each in findings]
        echo_json({"healthy": healthy, "verdict": verdict(findings), "findings": listed})
    else:
        click.echo(verdict(findings))
    raise SystemExit(0 if healthy else 1)
