"""The thread that writes the run directory: in order, without waiting, and loud when it cannot."""

import errno
import json
import logging
from pathlib import Path

import pytest

from analysis.rundir import RunDirError, RunWriter
from locustfiles.engine._filing import Filing


def make(folder: Path) -> Filing:
    return Filing(RunWriter.create(folder / "run", {"schema": 1, "state": "starting"}))


def state(folder: Path) -> object:
    return json.loads((folder / "run" / "manifest.json").read_text())["state"]


def test_writes_arrive_in_order(tmp_path: Path) -> None:
    filing = make(tmp_path)
    for number in range(50):
        filing.submit([(filing.writer.event, ({"id": number},)), (filing.writer.event, ({"id": -number},))])
    filing.wait()
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [sign * number for number in range(50) for sign in (1, -1)]
    assert state(tmp_path) == "starting"
    filing.close({"schema": 1, "state": "finished"})
    assert state(tmp_path) == "finished"
    assert filing.error is None


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RunDirError("the disk is full"), "the disk is full"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/slots.csv"), "/x/slots.csv: No space left on device"),
        (ValueError("what"), "ValueError: what"),
    ],
)
def test_the_first_failure_is_kept_and_the_last_manifest_written_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, says: str
) -> None:
    def fail() -> None:
        raise error

    filing = make(tmp_path)
    with caplog.at_level(logging.ERROR):
        filing.submit([(filing.writer.event, ({"id": 1},)), (fail, ()), (filing.writer.event, ({"id": 2},))])
        filing.submit([(filing.writer.event, ({"id": 3},))])
        filing.close({"schema": 1, "state": "finished"})
    assert filing.error == says
    assert [record.getMessage() for record in caplog.records] == [
        f"The run directory can be written no further: {says}"
    ]
    assert state(tmp_path) == "finished"
    written = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in written] == [1]
