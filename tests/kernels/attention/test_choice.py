"""Which schedule a problem gets: the shipped table, the rule where it has no class, and what cannot be had."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from amdwarp.kernels.attention import configs, forward
from amdwarp.kernels.shipped import forget

import amdwarp
from amdwarp.target import TARGETS

NEWEST = (3, 9)


def problem(monkeypatch, rows=512, keys=512, dim=64, arch="gfx950", **named):
    """The problem that a call makes, which is not computed."""
    found = []
    monkeypatch.setattr(forward, "compute", lambda one, *_: found.append(one))
    q = np.zeros((1, 2, rows, dim), np.float16)
    k = np.zeros((1, 1, keys, dim), np.float16)
    with amdwarp.emulate(arch):
        forward.attention(q, k, k, **named)
    return found[0]


@pytest.mark.parametrize("path", sorted(configs.TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_tables_are_legal_and_say_how_they_were_made(path):
    table = json.loads(path.read_text())
    assert table["made"]["how"] == "modelled" and table["made"]["parameters"] and table["made"]["command"]
    assert path.stem in TARGETS
    for entry in table["entries"].values():
        made = dataclasses.replace(configs.SCHEDULES[entry["schedule"]], **entry["fields"])
        assert made.constraints(path.stem) == []
        assert entry["clk"] == min(entry["tried"].values())


def test_every_class_of_gfx950_has_an_entry(monkeypatch):
    for dim in (64, 128):
        for causal in (False, True):
            for keys in (512, 4096):
                one = problem(monkeypatch, keys, keys, dim, causal=causal)
                assert configs.shipped(one) is not None
                assert configs.default(one, NEWEST) == configs.shipped(one)


def test_the_table_decides(monkeypatch, tmp_path):
    monkeypatch.setattr(configs, "TABLES", tmp_path)
    one = problem(monkeypatch)
    assert configs.default(one, NEWEST) == configs.PingPongSchedule()  # the rule
    for name, fields in (("intra_wave", {"ring": 3}), ("plain", {"block_m": 64})):
        entry = {"schedule": name, "fields": fields}
        text = json.dumps({"entries": {configs.problem_class(one): entry}})
        (tmp_path / "gfx950.json").write_text(text + " " * len(name))
        forget()
        assert configs.default(one, NEWEST) == dataclasses.replace(configs.SCHEDULES[name], **fields)
    # what the table names cannot be had with an older Triton
    entry = {"schedule": "intra_wave", "fields": {}}
    (tmp_path / "gfx950.json").write_text(json.dumps({"entries": {configs.problem_class(one): entry}}))
    forget()
    assert configs.default(one, (3, 8)) is None
    for broken in ("no json", '{"entries": {}}', json.dumps({"entries": {configs.problem_class(one): {}}})):
        (tmp_path / "gfx950.json").write_text(broken)
        forget()
        assert configs.default(one, NEWEST) == configs.PingPongSchedule()


def test_problems_without_a_class(monkeypatch):
    assert configs.problem_class(problem(monkeypatch, causal=True)) == "16-bit heads of 64 causal keys 512"
    assert configs.problem_class(problem(monkeypatch, 9000, 9000)) == "16-bit heads of 64 full keys 2048"
    for named in ({"window": (4, 4)}, {"softcap": 3.0}, {"bias": np.zeros((512, 512), np.float32)}, {"keys": 600}):
        assert configs.problem_class(problem(monkeypatch, **named)) is None
    assert configs.default(problem(monkeypatch, 8, 8), NEWEST) is None
