"""Apache Kafka's jars: named by a pom (`pom.xml` beside this file), brought by Maven, cached.

A cache folder appears whole or not at all, and belongs to one content of the pom: several processes
may ask at once, and a changed pom never meets old jars.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pipeline.errors import NoBrokerError

POM = Path(__file__).with_name("pom.xml")
LOGGING = Path(__file__).with_name("log4j2.properties")
JAVA_MIN = 17  # What the Kafka 4 server asks for.
MAVEN_S = 600  # 45 MB from an empty cache; 7 s here, minutes on a slow line.


def cache_dir() -> Path:
    """The folder for everything that can be fetched again."""
    chosen = os.environ.get("DTGOL_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return Path(chosen or Path.home() / ".cache") / "dtgol"


def kafka_version(pom: Path = POM) -> str:
    """The Kafka version that the pom pins."""
    found = re.search(r"<kafka\.version>([^<]+)</kafka\.version>", pom.read_text())
    assert found, f"{pom} has lost its kafka.version"
    return found.group(1)


def find_java() -> str:
    """A Java that can run the server: JAVA_HOME's, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        raise NoBrokerError(f"the local broker needs Java {JAVA_MIN} or newer, and there is none")
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', output)
    if found is None or int(found.group(1)) < JAVA_MIN:
        first_line = output.strip().partition("\n")[0]
        raise NoBrokerError(f"the local broker needs Java {JAVA_MIN} or newer, not {first_line}")
    return java


def kafka_jars(pom: Path = POM) -> Path:
    """The folder with the jars that a pom names, resolved now if it was never resolved before."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    folder = cache_dir() / f"kafka-{kafka_version(pom)}-{digest}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise NoBrokerError("the local broker's jars are not cached, and there is no Maven (mvn)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".resolving-") as fresh:
        jars = Path(fresh) / "jars"
        _resolve(maven, pom, jars)
        try:
            jars.rename(folder)
        except OSError:
            # Another process was first; its folder is as good as ours.
            if not folder.is_dir():
                raise
    return folder


def _resolve(maven: str, pom: Path, jars: Path) -> None:
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S, check=False)
    except subprocess.TimeoutExpired:
        raise NoBrokerError(f"Maven did not bring Kafka's jars in {MAVEN_S} s") from None
    if done.returncode != 0 or not any(jars.glob("kafka-clients-*.jar")):
        output = (done.stdout + done.stderr).strip()[-1500:]
        raise NoBrokerError(f"Maven could not bring Kafka's jars:\n{output}")
