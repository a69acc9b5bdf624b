"""The jobs that need the wheel's compiler. Run as a script with job names; prints one ``@result`` line for each.

Jobs: ``roundtrip:<case>:<arch>``, ``builders:<arch>``, ``registered:all``, ``list:all``, and ``abort:now``, which
kills the child.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lowering_corpus as corpus
from amdwarp.lowering import bridge, dialect, text, verify
from amdwarp.lowering.ir import Module
from amdwarp.lowering.passes import SCHEDULE, STAGES, TYPED, DropWindows, tasks
from amdwarp.lowering.passes.mark_stages import MarkStages
from amdwarp.lowering.pipeline import run_passes
from amdwarp.lowering.rewriter import Builder

from amdwarp.errors import LoweringError


def roundtrip(name: str, arch: str) -> dict[str, Any]:
    """Compile twice, once with every stage's module going through the IR; report what differs."""
    case = corpus.CASES[name]
    plain = corpus.compile_case(case, arch)
    stages: dict[str, bool] = {}
    unknown: set[str] = set()
    changed: list[str] = []  # stages that passes change although nothing in their text concerns them

    def through(stage: str) -> Callable[[Any], Any]:
        def edit(mod: Any) -> Any:
            context, before = mod.context, bridge.generic_text(mod)
            module = text.parse(before)
            verify.verify_module(module)
            stages[stage] = text.print_module(module) == before and text.print_module(module.clone()) == before
            unknown.update(op.name for op in module.walk() if not dialect.is_known(op.name))
            written = bridge.write(module, context)
            if not bridge.concerns_passes(before):
                every = (
                    [*TYPED, *SCHEDULE, DropWindows(), *STAGES, *tasks(module)] if stage == "ttgir" else [MarkStages()]
                )
                run_passes(module, every)
                changed.extend([stage] if text.print_module(module) != before else [])
            return written

        return edit

    edited = corpus.compile_case(case, arch, {stage: through(stage) for stage in corpus.STAGES})
    return {
        "stages": stages,
        "unknown": sorted(unknown),
        "changed": changed,
        "differ": [k for k in plain if k != "source" and plain[k] != edited[k]],
        "marked": [k for k in ("ttir", "glir", "ttgir") if "rocdl.kernel" in str(edited.get(k, ""))],
        "instructions": plain["amdgcn"].count("\n"),
    }


def insert_builders(module: Module) -> list[str]:
    """Put one of each builder's op in front of the return, as in a wave pipeline; returns their printed texts."""
    end = module.functions()[0].regions[0].blocks[-1].terminator
    assert end is not None
    build = Builder.before(end)
    thread = build.value(dialect.thread_id())
    group = build.value(dialect.divsi(thread, build.value(dialect.constant(256))))
    zero = build.value(dialect.constant(0))
    high = build.value(dialect.cmpi("ne", group, zero))
    ops = [dialect.local_barrier(), dialect.cond_barrier(high), dialect.s_setprio(1), dialect.sched_barrier()]
    ops += [dialect.sched_group_barrier(dialect.Mask.MFMA, 4, 1), dialect.sched_group_barrier("ds_read|valu", 2, 1)]
    ops += [dialect.s_barrier(), dialect.sched_barrier("all"), dialect.barrier("local", "global_write")]
    ops += [dialect.cond_barrier(build.value(dialect.cmpi("eq", group, zero))), dialect.s_setprio(0)]
    for op in ops:
        build.insert(op)
    total = thread
    for make in (dialect.addi, dialect.subi, dialect.muli, dialect.andi, dialect.remsi):
        total = build.value(make(total, group))
    build.insert(dialect.async_commit_group())
    build.insert(dialect.async_wait(0))
    text.assign_names(module.op)
    return [text.print_op(op) for op in ops]


def builders(arch: str) -> dict[str, Any]:
    """Compile a kernel with every builder's op in it."""
    seen: dict[str, Any] = {}

    def edit(mod: Any) -> Any:
        module = bridge.read(mod)
        seen["texts"] = insert_builders(module)
        verify.verify_module(module)
        written = text.print_module(module)
        seen["reprinted"] = bridge.generic_text(bridge.write(module, mod.context))
        seen["same"] = text.print_module(text.parse(written)) == written
        return bridge.write(module, mod.context)

    asm = corpus.compile_case(corpus.CASES["vector_add"], arch, {"ttgir": edit})
    return {**seen, "llir": asm["llir"], "amdgcn": asm["amdgcn"]}


def registered(_: str) -> dict[str, Any]:
    """Which Triton-dialect names of the op registry the wheel does not know."""
    absent = []
    context = bridge.new_context()
    for name in dialect.known_names():
        if not name.startswith(("tt.", "ttg.", "amdg.", "gluon.")):
            continue
        try:
            bridge.parse_text(f'"builtin.module"() ({{ "{name}"() : () -> () }}) : () -> ()', context)
        except LoweringError as error:
            Path(error.remedy.removeprefix("the text is in ")).unlink()
            if "unregistered" in error.problem:
                absent.append(name)
    return {"absent": absent}


def abort(_: str) -> dict[str, Any]:
    """What an assertion inside the wheel does."""
    os.abort()


def pairs(_: str) -> dict[str, Any]:
    return {"pairs": [(case.name, arch) for case in corpus.CASES.values() for arch in case.archs]}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "roundtrip": roundtrip,
    "builders": builders,
    "registered": registered,
    "abort": abort,
    "list": pairs,
}


def main() -> None:
    for job in sys.argv[1:]:
        kind, *arguments = job.split(":")
        try:
            result = JOBS[kind](*arguments)
        except Exception:
            result = {"error": traceback.format_exc()}
        print("@result " + json.dumps([job, result]), flush=True)


if __name__ == "__main__":
    main()
