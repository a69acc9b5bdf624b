"""Files that commands write: the whole of them or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from amdwarp import files


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    files.write_whole(file, "one")
    plain = tmp_path / "b.json"
    plain.write_text("")
    assert file.stat().st_mode == plain.stat().st_mode  # as the umask has it
    file.chmod(0o640)
    files.write_whole(file, "two")
    assert file.read_text() == "two" and file.stat().st_mode & 0o777 == 0o640
    assert {one.name for one in tmp_path.iterdir()} == {"a.json", "b.json"}


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    files.write_whole(tmp_path / "link.json", "text")
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "real.json").read_text() == "text"


def test_what_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "a.json"
    file.write_text("before")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_whole(file, "after")
    assert file.read_text() == "before" and [one.name for one in tmp_path.iterdir()] == ["a.json"]
