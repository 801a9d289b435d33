"""The report: what it says, how it bounds and escapes what comes from outside, and what it refuses."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import synthetic

from analysis import open_run, write_report
from analysis.report._thin import MAX_POINTS
from analysis.rundir import RunDirError
from analysis.words import ABSENT, ms


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return synthetic.write_campaign(tmp_path_factory.mktemp("campaign"), measured_s=8)


@pytest.fixture(scope="module")
def page(campaign: list[Path]) -> str:
    return write_report(campaign, campaign[0].parent / "report.html").read_text(encoding="utf-8")


def page_data(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def visible(page: str) -> str:
    """Text that a reader sees, white space collapsed."""

    class Text(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.parts: list[str] = []
            self.silent = 0

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.silent += tag in ("script", "style")

        def handle_endtag(self, tag: str) -> None:
            self.silent -= tag in ("script", "style")

        def handle_data(self, data: str) -> None:
            if not self.silent:
                self.parts.append(data)

    parser = Text()
    parser.feed(page)
    return " ".join(" ".join(parser.parts).split())


def test_a_report_is_one_page_that_fetches_nothing(page: str) -> None:
    assert len(page) < 6_000_000
    head = page[: page.index('<script type="application/json"')]
    assert not re.search(r"<(?:link|iframe|object|embed|img)\b|\bsrc=|@import|url\(", head)
    assert "default-src &#39;none&#39;" in head


def test_scripts_are_allowed_by_their_hash_alone(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"&#39;sha256-{digest}&#39;" in policy[1]
    assert "unsafe-eval" not in policy[1]
    assert "script-src &#39;sha256" in policy[1]


def test_the_table_holds_the_figures_of_the_summaries(page: str, campaign: list[Path]) -> None:
    text = visible(page)
    for path in campaign:
        one = open_run(path).summary()
        p99 = one.response.quantiles["p99"].value_us
        assert p99 is not None
        assert ms(p99 / 1000) in text
        assert f"{one.slots:,}" in text
    assert "Service time runs from the first byte sent" in text
    assert "How to read this" in text
    assert page.count("<li><b>") == 5


def test_gateways_stand_together_static_before_dynamic(campaign: list[Path], tmp_path: Path) -> None:
    shuffled = [*campaign[::2], *campaign[1::2]]
    text = visible(write_report(shuffled, tmp_path / "report.html").read_text(encoding="utf-8"))
    captions = re.findall(r"(direct|NGINX|HAProxy|Envoy|Traefik), (static|dynamic) ", text[text.index("Over time") :])
    pairs = [(name, kind) for name in ("NGINX", "HAProxy", "Envoy", "Traefik") for kind in ("static", "dynamic")]
    # campaign[::2] starts with direct, then the dynamic ones in order of gateways
    assert captions[:9] == [("direct", "static"), *pairs]


def test_published_figures_stand_beside_ours_and_are_marked(page: str) -> None:
    text = visible(page[page.index("Beside the published study") :])
    assert "Published figures are of other hardware, another load and other versions." in text
    assert re.search(r"NGINX measured here [\d.]+ ms", text)
    assert f"nginx-oss-1.8.0 published 32s 60s {ABSENT} 33,365 309 4,650" in text
    assert f"nginx-plus-1.8.0 published {ABSENT} {ABSENT} 254ms 0 0 0" in text


def test_data_cannot_end_its_script_element(page: str) -> None:
    start = page.index('id="data">') + len('id="data">')
    assert re.search("[<>&]", page[start : page.index("</script>", start)]) is None


def test_every_plot_is_small_enough_and_knows_its_colours(page: str) -> None:
    data = page_data(page)
    assert set(data["figures"]) == {"distribution-static", "distribution-dynamic", *(f"time{k}" for k in range(9))}
    for figure in data["figures"].values():
        assert all(len(trace["x"]) <= MAX_POINTS for trace in figure["data"])
        for token in re.findall(r'"@([^"]*)"', json.dumps(figure)):
            assert token in data["tokens"]


def test_the_baseline_stands_in_both_panels(page: str) -> None:
    figures = page_data(page)["figures"]
    names = {trace["name"] for trace in figures["distribution-dynamic"]["data"]}
    assert names == {"NGINX", "HAProxy", "Envoy", "Traefik", "direct (static)"}


def test_every_change_is_drawn(campaign: list[Path], page: str) -> None:
    figure = page_data(page)["figures"]["time2"]
    (run,) = [path for path in campaign if path.name.endswith("dynamic-nginx-0a1f")]
    requested = [round(change.requested_s, 3) for change in open_run(run).changes]
    lines = [shape["x0"] for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
    assert lines == requested == [4.2, 6.1]
    marks = next(trace for trace in figure["data"] if trace["name"] == "change")
    assert marks["text"][0].startswith("scale to 7 at 4.20 s, seen after ")


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    page = write_report([synthetic.write_hostile_run(tmp_path / "run")], tmp_path / "report.html").read_text(
        encoding="utf-8"
    )
    assert "<img" not in page.replace(plotly_of(page), "")
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page)[0]
    assert page.count("<script") == plotly_of(page).count("<script") + 3
    shown = re.sub("</?extra>", "", json.dumps(page_data(page)["figures"]))
    assert "<" not in shown
    assert "&lt;/script&gt;" in shown


def plotly_of(page: str) -> str:
    scripts: list[str] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    return max(scripts, key=len)


def test_an_invalid_or_incomplete_run_cannot_be_missed(tmp_path: Path, campaign: list[Path]) -> None:
    bad = synthetic.Plan(gateway="haproxy", manifest={"valid": False, "invalid_reasons": ["a worker was lost"]})
    dead = synthetic.Plan(gateway="traefik", manifest={"state": "running", "valid": None})
    runs = [
        *campaign[1:3],
        synthetic.write_run(tmp_path / "bad", bad),
        synthetic.write_run(tmp_path / "dead", dead),
    ]
    page = write_report(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    text = visible(page)
    assert "2 of 4 runs do not count. Do not use their figures." in text
    assert "HAProxy, static : invalid a worker was lost" in text
    assert "Traefik, static : incomplete the run has no end on record (state: running)" in text
    assert "The headline leaves out HAProxy and Traefik: see the notice below." in text
    assert page.count('<section class="notice invalid">') == 1


def test_a_single_run_that_does_not_count_has_the_notice_to_itself(tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "dead", synthetic.Plan(manifest={"state": "running", "valid": None}))
    page = write_report([run], tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<section class="notice incomplete">') == 1
    assert "NGINX, static: this run is incomplete. Do not use its figures." in visible(page)
    assert "There is no answer: none of these runs counts." in visible(page)


def test_mostly_not_2xx_cannot_be_missed(tmp_path: Path) -> None:
    run = synthetic.write_run(tmp_path / "run", synthetic.Plan(measured_s=2))
    (run / "outcomes.csv").write_text((run / "outcomes.csv").read_text().replace(",ok,200,", ",http_5xx,503,"))
    text = visible(write_report([run], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "NGINX, static: mostly not 2xx. Do not use its figures." in text
    assert "these are the times of errors, not of the service" in text


def test_repeats_are_told_apart(tmp_path: Path) -> None:
    runs = [synthetic.write_run(tmp_path / str(seed), synthetic.Plan(measured_s=2, seed=seed)) for seed in (1, 2)]
    text = visible(write_report(runs, tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "NGINX #1 static" in text
    assert "NGINX #2 static" in text


def test_no_runs_and_bad_places_are_refused(tmp_path: Path, campaign: list[Path]) -> None:
    with pytest.raises(ValueError, match="at least one run"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(RunDirError, match="not a run directory"):
        write_report([tmp_path], tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match=r"report\.html: .*; choose a folder that can be written"):
        write_report(campaign[:1], tmp_path / "file" / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_run_object_is_taken_as_well_as_a_path(campaign: list[Path], tmp_path: Path) -> None:
    run = open_run(campaign[0])
    by_run = write_report([run], tmp_path / "a.html").read_text(encoding="utf-8")
    assert by_run == write_report([campaign[0]], tmp_path / "b.html").read_text(encoding="utf-8")
