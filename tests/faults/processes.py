"""The processes of a trial: workers and evaluators, started, killed, frozen and replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.stage import Process, Stage
from tests.support.waiting import wait_until

END_S = 90
REACH_S = 120


@dataclass
class Member:
    """One process of a trial."""

    role: str
    process: Process
    folder: Path
    frozen: bool = False
    gone: bool = False

    @property
    def alive(self) -> bool:
        return not self.gone and self.process.alive()

    def about(self) -> dict[str, Any]:
        """Its status page; empty while nobody answers."""
        if self.frozen or not self.alive:
            return {}
        try:
            return self.process.status()
        except ValueError:
            return {}

    @property
    def partitions(self) -> dict[int, dict[str, Any]]:
        """Its status of each partition that it owns."""
        return {int(number): each for number, each in self.about().get("partitions", {}).items()}

    def signal(self, number: int) -> None:
        os.kill(self.process.child.pid, number)

    def reached(self) -> bool:
        """Whether it stands still at the point that it was started with."""
        return (self.folder / "reached").exists()

    def await_reached(self) -> None:
        wait_until(self.reached, "its point to be reached", REACH_S, self.process.alive)

    def release(self) -> None:
        (self.folder / "release").touch()


@dataclass
class Processes:
    """Every process that was ever started in a trial; those that still run are ended with it."""

    stage: Stage
    members: list[Member] = field(default_factory=list)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *failure: Any) -> None:
        for member in self.members:
            if member.frozen:
                self.thaw(member)
            if member.alive:
                member.process.child.terminate()
        self.stack.__exit__(*failure)

    def start(
        self, role: str = "worker", *more: str, at: str | None = None, times: int = 1
    ) -> Member:
        """One more process; `at` is where it pauses, one of tests/support/pause_points.py."""
        folder = self.stage.folder / f"member-{len(self.members)}"
        folder.mkdir()
        entry = ["tests.support.pause_points", at, str(times), str(folder)] if at else ["pipeline"]
        process = self.stack.enter_context(self.stage.process(role, *more, entry=entry))
        member = Member(role, process, folder)
        self.members.append(member)
        return member

    def of(self, role: str) -> list[Member]:
        """Those of a role that run, the frozen ones included, the oldest first."""
        return [member for member in self.members if member.role == role and member.alive]

    def kill(self, member: Member) -> float:
        """`kill -9`; the moment at which it was gone."""
        member.process.child.kill()
        member.process.child.wait()
        member.gone = True
        return time.time()

    def end(self, member: Member) -> int:
        """SIGTERM, and its exit code."""
        member.process.child.terminate()
        return self._ended(member)

    def _ended(self, member: Member) -> int:
        code = int(member.process.child.wait(END_S))
        member.gone = True
        return code

    def freeze(self, member: Member) -> None:
        member.signal(signal.SIGSTOP)
        member.frozen = True

    def thaw(self, member: Member) -> None:
        member.signal(signal.SIGCONT)
        member.frozen = False

    def end_all(self) -> dict[str, int]:
        """SIGTERM to all at once; exit codes by log name."""
        living = [member for member in self.members if member.alive]
        for member in living:
            member.process.child.terminate()
        return {member.process.log_path.name: self._ended(member) for member in living}

    def owners(self, role: str) -> Mapping[int, list[tuple[Member, dict[str, Any]]]]:
        """Who reports to own which partition, and with which status."""
        found: dict[int, list[tuple[Member, dict[str, Any]]]] = {}
        for member in self.of(role):
            for number, about in member.partitions.items():
                found.setdefault(number, []).append((member, about))
        return found

    def is_whole(self, role: str = "worker") -> bool:
        """Whether every partition has exactly one owner, and all that are not frozen are ready."""
        owners = self.owners(role)
        return (
            len(owners) == self.stage.partitions
            and all(len(each) == 1 and each[0][1]["ready"] for each in owners.values())
            and all(m.about().get("unready") == [] for m in self.of(role) if not m.frozen)
        )

    def dead(self) -> Iterator[Member]:
        """Those that ended without having been asked to."""
        return (member for member in self.members if not member.gone and not member.process.alive())
