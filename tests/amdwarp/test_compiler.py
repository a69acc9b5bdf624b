"""``amdwarp.compile``, the stages it inserts, and the keys that its programs are cached under."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

import amdwarp
import amdwarp.compiler
from amdwarp.errors import LoweringError, UsageError

sys.path.insert(0, str(Path(__file__).parent))
from stage_samples import ROW, SIGNATURE, plain, staged

ROOT = Path(__file__).parents[2]


def compiled(**changes: Any) -> Any:
    given = {
        "kernel": staged,
        "signature": SIGNATURE,
        "constexprs": {"L": ROW, "P": 1},
        "target": "gfx950",
        "num_warps": 8,
    }
    return amdwarp.compile(**{**given, **changes})


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    yield folder
    assert knobs.runtime.add_stages_inspection_hook is None, "a hook is left behind"


# ---- usage


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": "gfx1100"}, "unknown arch 'gfx1100'; use one of gfx942, gfx950, gfx1250"),
        ({"target": 950}, "unknown arch 950; use one of"),
        ({"num_wraps": 8}, "unknown option 'num_wraps'; the AMD backend knows "),
        ({"arch": "gfx942"}, "unknown option 'arch'"),
        (
            {"signature": {"x": "*fp32", "y": "*fp32"}},
            "the signature lacks parameter 'n'; give its type or its constexpr",
        ),
        ({"signature": {**SIGNATURE, "z": "i32"}}, "signature names 'z', which is no parameter; have x, y, n, L, P"),
        ({"constexprs": {"L": ROW, "P": 1, "Q": 2}}, "constexprs names 'Q', which is no parameter"),
        ({"constexprs": {"P": 1}}, "the signature lacks parameter 'L'"),
        ({"attrs": {"x": "Z"}}, "attrs['x'] = 'Z' is not understood; use D, S, DS or '' a parameter"),
        ({"attrs": {"w": "D"}}, "attrs['w'] = 'D' is not understood"),
        ({"attrs": {"x": 3}}, "attrs['x'] = 3 is not understood"),
        ({"attrs": {"P": "D"}}, "attrs names 'P', which is a compile-time constant; drop it"),
        ({"attrs": "DS"}, "attrs is a str; pass a dict with parameter names as keys"),
        ({"signature": None}, "signature is a NoneType; pass a dict"),
        ({"signature": "*fp32,*fp32,i32"}, "signature is a str; pass a dict"),
        ({"constexprs": [1]}, "constexprs is a list; pass a dict"),
        ({"signature": {**SIGNATURE, "x": "*float"}}, "signature['x'] = '*float' is no type; write i32, fp16, *fp16"),
        ({"signature": {**SIGNATURE, "x": "fp32*"}}, "signature['x'] = 'fp32*' is no type"),
        ({"signature": {**SIGNATURE, "n": int}}, "signature['n'] = <class 'int'> is no type"),
        ({"signature": {**SIGNATURE, "n": ""}}, "signature['n'] = '' is no type"),
        ({"signature": {**SIGNATURE, "n": "constexpr"}}, "or give its value in constexprs"),
        ({"num_warps": 3}, "the AMD backend refuses the options num_warps=3; num_warps must be a power of 2"),
        ({"num_warps": "8"}, "the AMD backend refuses the options num_warps='8'"),
        ({"backend_name": "cuda"}, "unknown option 'backend_name'"),
        ({"kernel": staged.fn}, "is no kernel; put @amdwarp.jit on it"),
        ({"kernel": None}, "None is no kernel"),
    ],
    ids=lambda value: re.sub(r" at 0x[0-9a-f]+", "", str(value)),
)
def test_a_wrong_use_is_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(**changes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@gluon.jit
def filled(y, VALUE: gl.constexpr = 7):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [1], [0])
    gl.store(y + gl.arange(0, 64, layout), gl.full([64], VALUE, gl.int32, layout))


def test_defaults_are_taken() -> None:
    def text(constants: dict[str, Any] | None) -> str:
        return amdwarp.compile(filled, {"y": "*i32"}, constants, num_warps=1).asm["ttgir"]

    assert "dense<7>" in text(None)
    assert "dense<9>" in text({"VALUE": 9})


def test_dumps_of_each_compilation_have_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled()
    monkeypatch.setenv("AMDWARP_DUMP_DIR", str(tmp_path / "dumps"))
    compiled()  # from the cache, were it not for the dumps
    compiled(constexprs={"L": ROW, "P": 2})
    assert not knobs.compilation.always_compile
    folders = sorted((tmp_path / "dumps").iterdir())
    assert [folder.name.rpartition("-")[0] for folder in folders] == [staged.__name__] * 2
    for folder in folders:
        passes = {file.stem.partition("-")[2] for file in folder.iterdir()}
        assert passes >= {"mark_stages", "inter_wave"}


@pytest.mark.parametrize("variable", ["TRITON_CACHE_DIR", "AMDWARP_DUMP_DIR"])
def test_a_folder_that_cannot_be_written(variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(variable, str(tmp_path / "file" / "folder"))
    with pytest.raises(UsageError, match=f"cannot be used: .*; set {variable} to a folder that can be written"):
        compiled()


def test_what_comes_out() -> None:
    made = compiled()
    assert set(made.asm) >= {"ttgir", "amdwarp", "llir", "amdgcn", "hsaco"}
    assert made.metadata.num_warps == 8
    assert "amdg.cond_barrier" not in made.asm["ttgir"]
    assert made.asm["amdwarp"].count("amdg.cond_barrier") == 2
    assert made.asm["hsaco"][:4] == b"\x7fELF"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_targets_by_name_and_record(arch: str) -> None:
    by_name, by_record = compiled(target=arch), compiled(target=amdwarp.get_target(arch))
    assert by_name.asm["amdgcn"] == by_record.asm["amdgcn"]
    assert arch in by_name.asm["amdgcn"].splitlines()[0]


def test_hints_are_those_of_a_launch() -> None:
    def hints(**given: str) -> str:
        return compiled(attrs=given).asm["ttgir"]

    assert hints().count("tt.divisibility = 16") == 2, "pointers by default"
    assert hints().count("tt.pointer_range = 32") == 2
    assert hints(n="D").count("tt.divisibility = 16") == 3
    assert hints(x="", y="S").count("tt.divisibility = 16") == 0
    assert hints(x="", y="S").count("tt.pointer_range = 32") == 1


def test_a_stock_kernel_is_compiled_with_our_stages_too() -> None:
    made = amdwarp.compile(plain, SIGNATURE, {"L": ROW}, "gfx950", num_warps=8)
    assert "amdwarp" in made.asm
    assert "cond_barrier" not in made.asm["amdwarp"]


def test_only_modules_that_concern_the_passes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from amdwarp.lowering import bridge

    def refuse(text: str) -> Any:
        raise LoweringError("it is read")

    whole = compiled(kernel=plain, constexprs={"L": ROW}).asm["amdgcn"]
    monkeypatch.setattr(bridge, "parse", refuse)
    shutil.rmtree(os.environ["TRITON_CACHE_DIR"])
    assert compiled(kernel=plain, constexprs={"L": ROW}).asm["amdgcn"] == whole
    with pytest.raises(LoweringError, match="it is read"):
        compiled()


# ---- the hook


def test_the_hook_goes_after_an_error() -> None:
    with pytest.raises(UsageError):
        compiled(constexprs={"L": ROW, "P": 9})
    assert knobs.runtime.add_stages_inspection_hook is None
    with pytest.raises(LoweringError, match="need 8 waves"):
        compiled(constexprs={"L": gl.BlockedLayout([1], [64], [4], [0]), "P": 1}, num_warps=4)
    assert knobs.runtime.add_stages_inspection_hook is None


def test_an_earlier_hook_stays_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook as another tool would install it: it has a key, and sees the stages before ours go in."""
    seen: list[Any] = []

    def earlier(*args: Any) -> Any:
        seen.append(tuple(args[1]) if args else "key")
        return None if args else ("earlier-key", "earlier-hash")

    without = compiled()
    with monkeypatch.context() as patch:
        patch.setattr(knobs.runtime, "add_stages_inspection_hook", earlier)
        made = compiled()
        assert knobs.runtime.add_stages_inspection_hook is earlier
    assert "key" in seen
    assert "amdwarp" not in seen[-1]
    assert {"ttgir", "llir", "amdgcn"} <= set(seen[-1])
    assert made.hash != without.hash, "the earlier hook's key is part of ours"
    assert made.asm["amdwarp"].count("amdg.cond_barrier") == 2


def test_a_hook_that_someone_installs_meanwhile_stays() -> None:
    def later(*args: Any) -> Any:
        return None if args else ("", "")

    try:
        with amdwarp.compiler.stages_installed():
            knobs.runtime.add_stages_inspection_hook = later
        assert knobs.runtime.add_stages_inspection_hook is later
    finally:
        knobs.runtime.add_stages_inspection_hook = None


def stock_compiled() -> Any:
    names = plain.arg_names
    attrs = {(names.index(p),): [["tt.divisibility", 16]] for p in ("x", "y")}
    source = GluonASTSource(plain, {**SIGNATURE, "L": "constexpr"}, {"L": ROW}, attrs)
    return triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options={"num_warps": 8})


def test_a_stock_kernel_in_another_thread_does_not_get_our_stages() -> None:
    before = stock_compiled()
    made: list[Any] = []
    with amdwarp.compiler.stages_installed(), knobs.compilation.scope():
        knobs.compilation.always_compile = True
        thread = threading.Thread(target=lambda: made.append(stock_compiled()))
        thread.start()
        thread.join()
    (kernel,) = made
    assert "amdwarp" not in kernel.asm
    assert kernel.hash == before.hash
    assert kernel.asm["amdgcn"] == before.asm["amdgcn"]


def test_two_of_our_kernels_compile_in_two_threads() -> None:
    made: dict[int, Any] = {}

    def work(priority: int) -> None:
        made[priority] = compiled(constexprs={"L": ROW, "P": priority})

    threads = [threading.Thread(target=work, args=(p,)) for p in (0, 1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for priority, kernel in made.items():
        assert f"rocdl.s.setprio {priority}" in kernel.asm["amdwarp"]
    assert len({kernel.hash for kernel in made.values()}) == 4


# ---- keys

CHILD = """
import json, sys
sys.path.insert(0, {tests!r})
import triton
from triton import knobs
hits = []
knobs.compilation.listener = lambda **seen: hits.append(seen["cache_hit"])
{body}
print("@" + json.dumps([made.hash, hits[-1], sys.modules.get("amdwarp") and sys.modules["amdwarp"].__file__]))
"""
OURS = """
import amdwarp
from stage_samples import ROW, SIGNATURE, staged
made = amdwarp.compile(staged, SIGNATURE, dict(L=ROW, P=1), "gfx950", num_warps=8)
"""
STOCK = """
from triton.experimental import gluon
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource
from stock_sample import ROW, plain
made = triton.compile(GluonASTSource(plain, dict(x="*fp32", L="constexpr"), dict(L=ROW), {}),
                      target=GPUTarget("hip", "gfx950", 64), options=dict(num_warps=8))
"""
STOCK_SAMPLE = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
ROW = gl.BlockedLayout([1], [64], [8], [0])

@gluon.jit
def plain(x, L: gl.constexpr):
    offsets = gl.arange(0, 512, L)
    gl.store(x + offsets, gl.load(x + offsets) * 2.0)
"""


def child(body: str, cache: Path, package: Path | None = None, tests: Path = Path(__file__).parent) -> list[Any]:
    """[hash, cache hit, the package's file] of a compilation in a new process."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(tests=str(tests), body=body)],
        env=environment,
        cwd=cache.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("@")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[0][1:])  # type: ignore[no-any-return]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that may be edited, in the place its installation has."""
    folder = tmp_path / "copy"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "amdwarp", folder / "amdwarp", ignore=skip)
    for part in ("lowering", "kernels"):
        shutil.copytree(ROOT / part, folder / "amdwarp" / part, ignore=skip)
    return folder


def test_an_edit_of_any_source_is_a_new_key(package: Path, cache: Path) -> None:
    first = child(OURS, cache, package)
    assert first[1] is False
    assert first[2].startswith(str(package))
    assert child(OURS, cache, package) == [first[0], True, first[2]]
    for name in ("lowering/passes/inter_wave.py", "kernels/__init__.py", "stage.py"):
        with (package / "amdwarp" / name).open("a", encoding="utf-8") as file:
            file.write("\n# edited\n")
        edited = child(OURS, cache, package)
        assert edited[1] is False, f"a program from before the edit of {name} was served"
        assert edited[0] != first[0]
        first = edited


def test_the_digest_covers_names_contents_and_data(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [package / "amdwarp" / part for part in ("lowering", "kernels")] + [package / "amdwarp"]
    monkeypatch.setattr(amdwarp.compiler, "_package_folders", lambda: folders)
    digest = amdwarp.compiler.source_digest.__wrapped__
    seen = {digest()}
    (package / "amdwarp" / "new.py").write_text("x = 1\n", encoding="utf-8")
    seen.add(digest())
    (package / "amdwarp" / "new.py").rename(package / "amdwarp" / "newer.py")
    seen.add(digest())
    (package / "amdwarp" / "kernels" / "table.json").write_text("{}", encoding="utf-8")
    seen.add(digest())
    assert len(seen) == 4
    (package / "amdwarp" / "notes.txt").write_text("no source", encoding="utf-8")
    assert digest() in seen


def test_the_digest_enters_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiled().hash
    assert compiled().hash == before
    monkeypatch.setattr(amdwarp.compiler, "source_digest", lambda: "another")
    assert compiled().hash != before


def test_stock_kernels_keep_their_disk_keys(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "stock_sample.py").write_text(STOCK_SAMPLE, encoding="utf-8")
    alone = child(STOCK, cache, tests=tmp_path)
    assert alone[2] is None
    assert alone[1] is False
    beside = child(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n" + OURS + STOCK, cache, tests=tmp_path
    )
    assert beside[:2] == [alone[0], True], "the key changed, or the program was made again"
    assert beside[2] is not None
