"""docker-compose.yml and the image, as far as they can be checked without an engine.

What was built and run for real, by hand, is written in docs/guide-operations.md.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli import COMMANDS
from pipeline.sandbox.brokers.jars import kafka_version

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
CONDITIONS = ("service_healthy", "service_completed_successfully", "service_started")
OURS = ("topics", "worker", "evaluator", "producer")
ONE_SHOT = ("topics", "producer")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return read


def test_every_service_that_should_be_there_is_there(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"kafka", *OURS, "prometheus", "grafana"}
    assert compose["services"]["worker"]["deploy"]["replicas"] == 2


def test_the_start_is_gated_by_health(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        if name == "kafka":
            continue
        assert service["depends_on"], name
        for needed, gate in service["depends_on"].items():
            assert needed in compose["services"]
            assert gate["condition"] in CONDITIONS
    services = compose["services"]
    assert services["topics"]["depends_on"]["kafka"]["condition"] == "service_healthy"
    for name in ("worker", "evaluator"):
        gate = services[name]["depends_on"]["topics"]["condition"]
        assert gate == "service_completed_successfully"


def test_every_lasting_service_has_a_health_check(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        check = service["healthcheck"]
        assert check.get("disable") is True if name in ONE_SHOT else check["test"][0] == "CMD"


def test_ours_are_built_from_the_dockerfile_and_run_commands_that_exist(
    compose: dict[str, Any],
) -> None:
    for name in OURS:
        service = compose["services"][name]
        assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]) == DOCKERFILE
        assert service["command"][0] in COMMANDS
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert service["tmpfs"] == ["/tmp"]


def test_kafka_is_the_version_of_the_local_broker(compose: dict[str, Any]) -> None:
    assert f"apache/kafka:{kafka_version()}" in compose["services"]["kafka"]["image"]


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_no_secret_is_written_down(compose: dict[str, Any]) -> None:
    for path in (COMPOSE, DOCKERFILE, *sorted((ROOT / "deploy").rglob("*.yml"))):
        assert not re.search(r"(?i)(password|secret|token)\w*\s*[:=]\s*[^\s$]", path.read_text())


def test_files_that_are_mounted_exist(compose: dict[str, Any]) -> None:
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
    ]
    for each in mounted:
        assert (ROOT / each).exists() if each.startswith(".") else each in compose["volumes"]


def test_prometheus_scrapes_the_port_that_the_processes_listen_on(compose: dict[str, Any]) -> None:
    scrape = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {
        (found["names"][0], str(found["port"]))
        for job in scrape["scrape_configs"]
        for found in job["dns_sd_configs"]
    }
    port = compose["services"]["worker"]["environment"]["DTGOL_WEB_PORT"]
    assert targets == {("worker", port), ("evaluator", port)}


def test_the_image_runs_without_root_and_with_compiled_kernels() -> None:
    text = DOCKERFILE.read_text()
    stages = re.findall(r"^FROM .*$", text, re.MULTILINE)
    assert len(stages) == 2
    last = text.rpartition("FROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    # Seen: run inside /src it filled the cache for paths that the image does not have.
    assert re.search(r"^RUN cd / && .* -m pipeline.runtime.warmup$", text, re.MULTILINE)
    assert "--no-cache" not in text


def test_what_the_image_copies_is_let_through() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    allowed = (ROOT / "deploy/Dockerfile.dockerignore").read_text()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"\n!{name}\n" in allowed


def test_the_file_follows_the_compose_specification() -> None:
    """By the specification's own schema: no engine and no compose plugin are needed."""
    schema = ["--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
