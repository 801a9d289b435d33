"""The run directory on disk: what the writer leaves behind, and what the reader makes of good and bad files."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from analysis.rundir import (
    ConnectionsRow,
    GeneratorRow,
    OutcomeRow,
    ReplicaRow,
    ResourceRow,
    RunDirError,
    RunReader,
    RunWriter,
    SlotsRow,
    hdr_index,
)


def write(path: Path) -> Path:
    with RunWriter.create(path, {"schema": 1, "t0_utc": None}) as writer:
        writer.manifest({"schema": 1, "t0_utc": "2026-11-30T12:00:00Z"})
        writer.histogram(1, "GET /a,b c", "response", [5, 70], [2, 3])
        writer.histogram(0, "GET /a,b c", "failed", [9], [1])
        writer.histogram(1, "GET /a,b c", "response", [5], [10])
        writer.histogram(1, "GET /a,b c", "service", [], [])
        writer.slots(0, "GET /a,b c", 6, 5, 4, 3, 1)
        writer.outcome(0, "GET /a,b c", "ok", "200", 5, 1000, 200)
        writer.connections(0, 1, 2, 3, 4, 5)
        writer.replica(0, "nginx-0", "3", 5)
        writer.resource(0, "gateway", "nginx", 0.25, 0.125, 4096, "proc")
        writer.generator(
            0,
            "w0",
            loop_lag_p99_us=10,
            loop_lag_max_us=20,
            cpu_s=0.5,
            cpu_quota=None,
            throttled_s=None,
            steal_s=0.0,
            fds=9,
            gc_pause_max_us=None,
            retransmits=None,
            clipped=0,
        )
        writer.event({"id": 1, "kind": "scale", "requested_s": 1.5, "settled_s": None})
        writer.event({"id": 2, "kind": "cors", "requested_s": 2.5})
        writer.event({"id": 1, "kind": "scale", "requested_s": 1.5, "settled_s": 1.6})
    return path


def test_everything_written_is_read_back(tmp_path: Path) -> None:
    reader = RunReader(write(tmp_path / "run"))
    assert reader.manifest == {"schema": 1, "t0_utc": "2026-11-30T12:00:00Z"}
    assert list(reader.rows(SlotsRow)) == [SlotsRow(0, "GET /a,b c", 6, 5, 4, 3, 1)]
    assert list(reader.rows(OutcomeRow)) == [OutcomeRow(0, "GET /a,b c", "ok", "200", 5, 1000, 200)]
    assert list(reader.rows(ConnectionsRow)) == [ConnectionsRow(0, 1, 2, 3, 4, 5)]
    assert list(reader.rows(ReplicaRow)) == [ReplicaRow(0, "nginx-0", "3", 5)]
    assert list(reader.rows(ResourceRow)) == [ResourceRow(0, "gateway", "nginx", 0.25, 0.125, 4096, "proc")]
    assert list(reader.rows(GeneratorRow)) == [
        GeneratorRow(0, "w0", 10, 20, 0.5, None, None, 0.0, 9, None, None, 0),
    ]
    assert [(event["id"], event.get("settled_s")) for event in reader.events()] == [(1, 1.6), (2, None)]
    assert reader.notes == []


def test_histograms_come_by_second_whatever_the_order_of_the_lines(tmp_path: Path) -> None:
    intervals = list(RunReader(write(tmp_path / "run")).histograms())
    assert [(one.second, one.name, one.metric, one.indices.tolist(), one.counts.tolist()) for one in intervals] == [
        (0, "GET /a,b c", "failed", [9], [1]),
        (1, "GET /a,b c", "response", [5, 70], [2, 3]),
        (1, "GET /a,b c", "response", [5], [10]),
    ]


def test_hdrhistograms_own_reader_reads_the_log(tmp_path: Path) -> None:
    log = HistogramLogReader(str(write(tmp_path / "run") / "histograms.hlog"), HdrHistogram(1, 3_600_000_000, 3))
    try:
        found = []
        while (histogram := log.get_next_interval_histogram()) is not None:
            found.append((histogram.get_tag(), histogram.get_total_count(), histogram.get_start_time_stamp() / 1000))
    finally:
        log.close()
    assert found == [
        ("GET%20%2Fa%2Cb%20c/response", 5, 1796040001.0),
        ("GET%20%2Fa%2Cb%20c/failed", 1, 1796040000.0),
        ("GET%20%2Fa%2Cb%20c/response", 10, 1796040001.0),
    ]
    assert log.get_start_time_sec() == 1796040000.0


def test_log_says_its_version_and_units(tmp_path: Path) -> None:
    lines = (write(tmp_path / "run") / "histograms.hlog").read_text().splitlines()
    assert lines[0] == "#[Histogram log format version 1.3]"
    assert "Values in microseconds, Interval_Max in milliseconds" in lines[1]
    assert lines[2] == '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    assert lines[5].startswith("Tag=GET%20%2Fa%2Cb%20c/response,1.000,1.000,0.070,HISTFAAA")


def test_one_row_is_one_line_whatever_a_name_holds(tmp_path: Path) -> None:
    name = 'a"b\r\n1,2\x00\x1b[31m\u2028' + "x" * 500
    with RunWriter.create(tmp_path / "run", {"schema": 1}) as writer:
        writer.replica(0, name, "\ud800", 1)
        writer.histogram(0, name, "response", [1], [1])
    reader = RunReader(tmp_path / "run")
    rows = list(reader.rows(ReplicaRow))
    assert len(rows) == 1
    assert rows[0].gateway_replica.startswith('a"b\ufffd\ufffd1,2\ufffd\ufffd[31m\ufffdxxx')
    assert (len(rows[0].gateway_replica), rows[0].backend) == (256, "?")
    assert [interval.name for interval in reader.histograms()] == [rows[0].gateway_replica]


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(RunDirError, match="is not empty; runs are never overwritten"):
        RunWriter.create(tmp_path, {"schema": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"run directory .*file/run: Not a directory; choose another"):
        RunWriter.create(tmp_path / "file" / "run", {"schema": 1})


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda w: w.histogram(0, "n", "speed", [1], [1]), "metric 'speed': known are response"),
        (lambda w: w.histogram(0, "n", "response", [2, 1], [1, 1]), "histogram of n/response, second 0: indices must"),
        (lambda w: w.outcome(0, "n", "odd", "", 1, 0, 0), "outcome 'odd': known are ok"),
        (lambda w: w.resource(0, "worker", "0", float("nan"), 0.0, 0, ""), "a field of a CSV row is nan"),
        (lambda w: w.event({"x": float("inf")}), "event: JSON cannot hold it"),
        (lambda w: w.manifest({"x": object()}), "manifest: JSON cannot hold it"),
        (lambda w: w.manifest({"t0_utc": "noon"}), "'noon' is not an ISO 8601 time"),
    ],
)
def test_what_no_reader_could_take_is_not_written(
    tmp_path: Path, act: Callable[[RunWriter], None], message: str
) -> None:
    with RunWriter.create(tmp_path / "run", {"schema": 1}) as writer, pytest.raises(RunDirError, match=message):
        act(writer)


def test_writing_after_close_is_an_error_and_closing_twice_is_none(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", {"schema": 1})
    writer.close()
    writer.close()
    with pytest.raises(RunDirError, match=r"slots\.csv: the run directory is closed"):
        writer.slots(0, "n", 1, 1, 0, 0, 0)


FULL_DISK = """
import resource, sys
from pathlib import Path
from analysis.rundir import RunDirError, RunWriter
writer = RunWriter.create(Path(sys.argv[1]), {"schema": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    for second in range(1000):
        writer.slots(second, "name", 1, 1, 0, 0, 0)
        writer.flush()
except RunDirError as error:
    print(error)
writer.close()
"""


def test_a_disk_that_takes_no_more_is_one_line_and_keeps_whole_rows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = subprocess.run([sys.executable, "-c", FULL_DISK, str(run)], capture_output=True, text=True)
    assert ended.stdout == f"{run}/slots.csv: File too large\n"
    reader = RunReader(run)
    assert [row.second for row in reader.rows(SlotsRow)][:3] == [0, 1, 2]
    assert len(reader.notes) == 1


def test_a_manifest_is_replaced_whole(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {"schema": 1, "state": "running"}) as writer:
        writer.manifest({"schema": 1, "state": "finished"})
    assert RunReader(tmp_path / "run").manifest["state"] == "finished"
    assert not list((tmp_path / "run").glob("*.tmp"))


@pytest.mark.parametrize(
    "name", ["histograms.hlog", "slots.csv", "outcomes.csv", "events.jsonl", "generator.csv", "resources.csv"]
)
def test_a_last_line_cut_off_by_a_crash_is_left_out_with_a_note(tmp_path: Path, name: str) -> None:
    run = write(tmp_path / "run")
    whole = (run / name).read_bytes()
    before = _read_all(RunReader(run))
    (run / name).write_bytes(whole + whole.splitlines(keepends=True)[-1][:-1])
    reader = RunReader(run)
    assert _read_all(reader) == before
    number = len(whole.splitlines()) + 1
    assert reader.notes == [f"{name}: its last line ({number}) is cut off and left out"]


def _read_all(reader: RunReader) -> list[object]:
    tables = [list(reader.rows(row)) for row in (SlotsRow, OutcomeRow, GeneratorRow, ResourceRow)]
    intervals = [(one.second, one.name, one.metric, one.counts.tolist()) for one in reader.histograms()]
    return [*tables, intervals, reader.events()]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_table_cut_anywhere_reads_up_to_there(tmp_path: Path, cut: int) -> None:
    run = write(tmp_path / "run")
    whole = (run / "slots.csv").read_bytes()
    (run / "slots.csv").write_bytes(whole[:cut])
    reader = RunReader(run)
    assert list(reader.rows(SlotsRow)) == []
    assert len(reader.notes) == (1 if cut else 0)


def test_missing_files_are_empty(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": 1}')
    assert _read_all(RunReader(tmp_path)) == [[], [], [], [], [], []]


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("slots.csv", b"0,n,1,1,0,0\n", r"slots\.csv:3: 6 fields, not 7"),
        ("slots.csv", b"x,n,1,1,0,0,0\n", r"slots\.csv:3: 'x' is not a second"),
        ("slots.csv", b"1000001,n,1,1,0,0,0\n", r"slots\.csv:3: second 1000001 is outside -3600\.\.1000000"),
        ("slots.csv", b"0,n,-1,1,0,0,0\n", r"slots\.csv:3: '-1' is not a count"),
        ("slots.csv", b"0,n,1_0,1,0,0,0\n", r"slots\.csv:3: '1_0' is not a count"),
        ("slots.csv", "0,n,\u0661,1,0,0,0\n".encode(), r"slots\.csv:3: '.' is not a count"),
        ("slots.csv", b"0,n,99999999999999999,1,0,0,0\n", r"slots\.csv:3: '9+' is too large for a count"),
        ("slots.csv", b"0,n,999999999999999999999999999999999999999999999,1,0,0,0\n", r"slots\.csv:3: '9{40}…' is not"),
        ("slots.csv", b'0,"n,1,1,0,0,0\n', r"slots\.csv:3: not CSV"),
        ("slots.csv", b"0,\xff,1,1,0,0,0\n", r"slots\.csv:3: not UTF-8"),
        ("slots.csv", b"0," + b"n" * 70_000 + b",1,1,0,0,0\n", r"slots\.csv:3: a line of more than 65536 bytes"),
        ("outcomes.csv", b"0,n,odd,200,1,0,0\n", r"outcomes\.csv:3: 'odd' is no outcome"),
        ("resources.csv", b"0,gateway,n,nan,0,1,p\n", r"resources\.csv:3: 'nan' is not a number of seconds"),
        ("resources.csv", b"0,gateway,n,-1,0,1,p\n", r"resources\.csv:3: '-1' is not a number of seconds"),
        ("generator.csv", b"0,w,x,,,,,,,,,\n", r"generator\.csv:3: 'x' is not a count"),
        ("events.jsonl", b"{]\n", r"events\.jsonl:4: not JSON"),
        ("events.jsonl", b"[1]\n", r"events\.jsonl:4: not a JSON object"),
        ("events.jsonl", b'{"id": 1}\n', r"events\.jsonl:4: an event without kind"),
        ("events.jsonl", b'{"id": [1], "kind": "x"}\n', r"events\.jsonl:4: id is neither"),
        ("events.jsonl", b'{"id": 1, "kind": "x", "y": NaN}\n', r"events\.jsonl:4: not JSON: NaN is no JSON number"),
        ("events.jsonl", b"[" * 100_000 + b"\n", r"events\.jsonl:4: not JSON"),
        ("histograms.hlog", b"0.000,1.000,1.000,HISTFAAA\n", r"histograms\.hlog:9: not a histogram line"),
        ("histograms.hlog", b"Tag=n/speed,0.000,1.000,1.000,HIST\n", r"histograms\.hlog:9: its tag does not end in"),
        (
            "histograms.hlog",
            b"Tag=n/response,0.500,1.000,1.0,H\n",
            r"histograms\.hlog:9: .*not start on a whole second",
        ),
        ("histograms.hlog", b"Tag=n/response,0.000,1.000,1.000,HISTF!\n", r"histograms\.hlog:9: not base64"),
    ],
)
def test_anything_else_malformed_is_an_error_naming_file_and_line(
    tmp_path: Path, name: str, line: bytes, message: str
) -> None:
    run = write(tmp_path / "run")
    with (run / name).open("ab") as file:
        file.write(line)
    with pytest.raises(RunDirError, match=message) as raised:
        _read_all(RunReader(run))
    assert "\n" not in str(raised.value)


def test_foreign_columns_are_an_error(tmp_path: Path) -> None:
    run = write(tmp_path / "run")
    (run / "slots.csv").write_text("a,b,c,d,e,f,g\n")
    with pytest.raises(RunDirError, match=r"slots\.csv:1: the columns are not second,name,due"):
        list(RunReader(run).rows(SlotsRow))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ('{"schema": 2}', r"schema 2 is newer than this ingress-swarm, which reads up to 1: upgrade it"),
        ('{"schema": "1"}', r'schema is "1", not a number'),
        ('{"schema": true}', r"schema is true, not a number"),
        ("{}", r"schema is null, not a number"),
        ("[]", r"manifest\.json: not a JSON object"),
        ("", r"manifest\.json: not JSON"),
    ],
)
def test_bad_manifests(tmp_path: Path, manifest: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    with pytest.raises(RunDirError, match=message):
        RunReader(tmp_path)


def test_what_is_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"not a run directory \(no such folder\)"):
        RunReader(tmp_path / "absent")
    with pytest.raises(RunDirError, match=r"not a run directory \(no manifest\.json in it\)"):
        RunReader(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="not a run directory"):
        RunReader(tmp_path / "file")


def test_events_are_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {"schema": 1}) as writer:
        writer.event({"id": 1, "kind": "scale"})
        line = (tmp_path / "run" / "events.jsonl").read_text()
    assert json.loads(line) == {"id": 1, "kind": "scale"}


def test_counts_of_numpy_arrays_are_taken_as_they_are(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {"schema": 1}) as writer:
        writer.histogram(0, "n", "response", hdr_index([100, 5000]), hdr_index([7, 8]))
    (interval,) = RunReader(tmp_path / "run").histograms()
    assert interval.indices.tolist() == hdr_index([100, 5000]).tolist()
    assert interval.counts.tolist() == [7, 8]
