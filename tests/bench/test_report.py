"""The page: its text, and in a headless Chromium what a click on a filter shows."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import bench_samples as samples
import pytest
from amdwarp.bench.report import write_site
from amdwarp.bench.report.figures import build_figures

from amdwarp.errors import UsageError

pytest.importorskip("plotly", reason="plotly is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--window-size=1400,1000"]
FLAGS += ["--virtual-time-budget=20000", "--dump-dom"]
#: What the page looks like, as a person sees it, after each click.
PROBE = """
<script>
const wrong = [];
window.addEventListener("error", (event) => wrong.push(event.message));
function look() {
  const cards = [...document.querySelectorAll(".card")].filter((card) => !card.hidden && card.offsetHeight);
  return {
    count: document.getElementById("count").textContent,
    rows: [...document.querySelectorAll("#table tbody tr")].filter((row) => row.offsetHeight)
      .map((row) => [...row.cells].map((cell) => cell.textContent)),
    cards: cards.map((card) => ({
      id: card.querySelector(".js-plotly-plot").id,
      badge: card.querySelector(".badge").textContent,
      bars: card.querySelectorAll(".bars .point").length,
      lines: card.querySelectorAll(".scatterlayer .trace").length,
      legend: [...card.querySelectorAll(".legendtext")].map((text) => text.textContent),
      axis: card.querySelector(".ytitle").textContent,
    })),
    notes: [...document.querySelectorAll("section > p.none")].filter((note) => note.offsetHeight).length,
    on: [...document.querySelectorAll("#filters button.on")].map((button) => button.textContent),
  };
}
window.addEventListener("load", async () => {
  const seen = [look()];
  for (const [filter, value] of CLICKS) {
    document.querySelector(`button[data-filter="${filter}"][data-value="${value}"]`).click();
    await new Promise((done) => setTimeout(done, 300));
    seen.push(look());
  }
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({ seen, wrong, loaded });
  document.body.append(out);
});
</script>
</body>"""


def after_clicks(page: Path, clicks: list[tuple[str, str]], folder: Path) -> dict[str, Any]:
    """Open a page in Chromium, click filters, and return what it showed before and after each."""
    assert CHROMIUM is not None
    probed = page.with_name("probe.html")
    probed.write_text(page.read_text().replace("</body>", PROBE.replace("CLICKS", json.dumps(clicks))))
    words = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", probed.resolve().as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(samples.many_rows(), tmp_path_factory.mktemp("site"))


browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium, and none is installed")


@browser
def test_filters_show_what_they_say(site: Path, tmp_path: Path) -> None:
    clicks = [("dtype", "fp16"), ("source", "modelled"), ("variant", "stock"), ("source", "hardware"), ("source", "")]
    result = after_clicks(site, clicks, tmp_path)
    assert result["wrong"] == []
    assert all(name.startswith("file:") for name in result["loaded"])
    start, fp16, modelled, stock, hardware, every = result["seen"]

    assert start["count"] == "52 of 52 figures" and len(start["rows"]) == 52
    bars = {card["id"]: card["bars"] for card in start["cards"]}
    assert bars["side-hardware-gemm-tflops"] == 4 and bars["side-modelled-gemm-kernel_clk"] == 4
    assert {card["id"] for card in start["cards"]} >= {"roof-hardware", "roof-modelled", "history-hardware-gemm-tflops"}

    assert fp16["count"] == "26 of 52 figures" and {row[3] for row in fp16["rows"]} == {"fp16"}
    bars = {card["id"]: card["bars"] for card in fp16["cards"]}
    assert bars["side-hardware-gemm-tflops"] == 2 and len(fp16["cards"]) == len(start["cards"])
    assert "fp16" in fp16["on"] and fp16["on"].count("all") == 4

    assert {card["badge"] for card in modelled["cards"]} == {"modelled, not measured"}
    assert {row[10] for row in modelled["rows"]} == {"modelled, not measured"} and modelled[
        "count"
    ] == "14 of 52 figures"
    assert "roof-hardware" not in {card["id"] for card in modelled["cards"]}

    assert {row[1] for row in stock["rows"]} == {"stock"} and stock["count"] == "7 of 52 figures"
    for card in stock["cards"]:
        assert card["legend"] in (["stock"], ["stock fp16"]) or card["id"].startswith("roof-")
        assert card["bars"] + card["lines"] == (2 if card["id"].startswith("roof-") else 1)

    assert {card["badge"] for card in hardware["cards"]} == {"measured on a GPU"}
    assert {row[9] for row in hardware["rows"]} == {"TFLOP/s", "ms"}
    assert every["count"] == "13 of 52 figures"


@browser
def test_a_filter_that_leaves_nothing_says_so(tmp_path: Path) -> None:
    rows = [samples.row("vgprs", 240.0), samples.row("kernel_clk", 1e5, variant="stock")]
    page = write_site(rows, tmp_path / "site")
    result = after_clicks(page, [("source", "cpu"), ("variant", "stock"), ("source", "")], tmp_path)
    assert [one["notes"] for one in result["seen"]] == [0, 0, 2, 0]
    assert [one["count"][0] for one in result["seen"]] == ["2", "1", "0", "1"]


@browser
def test_texts_from_files_are_not_run_as_html(tmp_path: Path) -> None:
    evil = '</script><img src=x onerror="window.hit=1">\'"&'
    rows = [samples.row("vgprs", 1.0, kernel=evil, variant=evil), samples.row("tflops", 9.0, gpu=evil, dtype=evil)]
    page = write_site(rows, tmp_path / "site")
    result = after_clicks(page, [("source", "cpu")], tmp_path)
    assert result["wrong"] == []
    assert result["seen"][1]["count"] == "1 of 2 figures"
    assert result["seen"][1]["rows"][0][0] == evil
    assert not [name for name in result["loaded"] if not name.endswith("plotly.min.js")]


def test_every_figure_is_labelled(site: Path) -> None:
    text = site.read_text()
    cards = re.findall(r'<article class="card.*?</article>', text, re.DOTALL)
    assert len(cards) == 20
    for card in cards:
        assert card.count('<span class="badge ') == 1
        modelled = "modelled, not measured" in card
        assert modelled == ("MODELLED" in card)
        assert not (modelled and re.search(r"TFLOP|on the CPU|measured on a", card))
    for line in re.findall(r"<tr data-meta.*?</tr>", text, re.DOTALL):
        assert ("modelled, not measured" in line) == (samples.DIGEST in line)


def test_an_uncalibrated_figure_says_so(tmp_path: Path) -> None:
    rows = [samples.row("kernel_clk", 5.0, target="gfx1250", calibrated="no")]
    text = write_site(rows, tmp_path).read_text()
    assert text.count("modelled, not measured, uncalibrated target: a bound only") == 4
    assert "clk, MODELLED, uncalibrated" in text


def test_the_newest_figure_is_the_one_in_the_table(tmp_path: Path) -> None:
    rows = [samples.row("vgprs", value, time=f"2026-01-0{day}T00:00:00+00:00") for day, value in ((2, 7.0), (1, 5.0))]
    text = write_site([*rows, rows[0]], tmp_path).read_text()
    assert re.findall(r'class="number">(\d+)<', text) == ["7", "7", "7"]
    assert "1 of 1 figures" in text


def test_the_newest_is_that_by_the_clock_whatever_the_offset(tmp_path: Path) -> None:
    """10:00+02:00 is before 9:30 UTC, though not as a text; the axis is in UTC."""
    times = {5.0: "2026-01-02T10:00:00+02:00", 7.0: "2026-01-02T09:30:00Z"}
    rows = [samples.row("vgprs", value, time=time) for value, time in times.items()]
    text = write_site(rows, tmp_path).read_text()
    assert re.findall(r'class="number">(\d+)<', text) == ["7", "7", "7"]
    assert "2026-01-02T10:00:00+02:00 to 2026-01-02T09:30:00Z" in text
    (history,) = [card for card in build_figures(rows) if card.section == "history"]
    assert history.figure.data[0].x == ("2026-01-02T08:00:00+00:00", "2026-01-02T09:30:00+00:00")


def test_bounds_of_an_uncalibrated_target_have_charts_of_their_own() -> None:
    names = {
        "kernel_clk": 5.0,
        "flop_per_clk": 900,
        "flop_per_byte": 64,
        "mfma_busy": 90,
        "mfma_limit": 9,
        "load_limit": 5,
    }
    rows = [samples.row(name, value) for name, value in names.items()]
    rows += [samples.row(name, value, target="gfx1250", calibrated="no") for name, value in names.items()]
    cards = build_figures(rows)
    assert len({card.name for card in cards}) == len(cards)
    for card in cards:
        targets = {trace.meta["target"] for trace in card.figure.data}
        assert targets == ({"gfx1250"} if card.name.endswith("-uncalibrated") else {"gfx950"})
        assert card.row.target in targets
    assert {card.name for card in cards} >= {"roof-modelled", "roof-modelled-uncalibrated"}


def test_figures_of_different_parameters_say_that_they_do_not_compare() -> None:
    other = "0" * 12
    rows = [samples.row("kernel_clk", 5.0, variant="one"), samples.row("kernel_clk", 6.0, variant="two")]
    assert not any("compare" in card.note for card in build_figures(rows))
    rows[1] = dataclasses.replace(rows[1], parameters=other)
    for card in build_figures(rows):
        assert f"gfx950 with parameters {samples.DIGEST}, {other}: figures of different parameters do not" in card.note
    rows[1] = dataclasses.replace(rows[1], target="gfx942")  # which has parameters of its own
    assert not any("compare" in card.note for card in build_figures(rows))


def test_nothing_to_show_and_nowhere_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no figures to show"):
        write_site([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file cannot be written"):
        write_site([samples.row("vgprs", 1.0)], tmp_path / "file")


def test_without_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util as util

    find = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name, *rest: None if name == "plotly" else find(name, *rest))
    with pytest.raises(UsageError, match=r'plotly is not installed; pip install "amdwarp\[bench\]"'):
        write_site([samples.row("vgprs", 1.0)], tmp_path)
    assert "plotly" in sys.modules


def test_charts_say_their_values_and_stand_in_the_order_of_the_tables() -> None:
    values = {"spills": 0, "vgprs": 64, "emulator_throughput": 5, "mfma_busy": 97.41, "tflops": 1500}
    rows = [samples.row(name, value) for name, value in values.items()]
    rows[2] = dataclasses.replace(rows[2], p80=6)  # its error bar is there instead
    cards = [card for card in build_figures(rows) if card.section == "side"]
    found = [(card.row.metric, *card.figure.data[0].text) for card in cards]
    assert found == [
        ("tflops", "1,500"),
        ("mfma_busy", "97.41"),
        ("vgprs", "64"),
        ("spills", "0"),
        ("emulator_throughput", ""),
    ]
