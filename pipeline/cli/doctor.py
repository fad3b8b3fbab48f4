"""`dtgol doctor`: what is wrong with a cluster, its topics and its producers, and what to do."""

import json
from dataclasses import asdict

import click

from pipeline.cli import BadInput
from pipeline.cli.codes import codes
from pipeline.cli.connection import Target, cluster_options


@click.command(epilog=codes("doctor"))
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
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def doctor(target: Target, samples: int, probe: bool, as_json: bool) -> None:
    """Check broker, topics, keys, clocks and lag; end with a verdict and what to do.

    Nothing is changed, unless by --probe. Of sampled records only key, stream and id are looked
    at, and nothing of them is shown.
    """
    from pipeline.client.sending import ClusterError
    from pipeline.doctor.examination import Patient, examine
    from pipeline.doctor.findings import Status, verdict

    patient = Patient(
        target.client,
        target.prefix,
        target.groups,
        target.prompt,
        target.settings.snapshots.every_records,
        target.settings.group("worker"),
        target.settings.worker.journal_ahead_max,
        target.tls,
    )
    findings = []
    try:
        for finding in examine(patient, samples, probe):
            findings.append(finding)
            if not as_json:
                advice = f"\n         → {finding.advice}" if finding.advice else ""
                click.echo(f"{finding.status:8} {finding.check}: {finding.said}{advice}")
    except ClusterError as error:
        raise BadInput(str(error)) from None
    healthy = all(each.status is not Status.PROBLEM for each in findings)
    if as_json:
        said = {
            "healthy": healthy,
            "verdict": verdict(findings),
            "findings": [asdict(each) for each in findings],
        }
        click.echo(json.dumps(said))
    else:
        click.echo(verdict(findings))
    raise SystemExit(0 if healthy else 1)
