"""Loops drawn at random, and what no model of a compute unit may do with them: less work is not slower.

``python tests/amdwarp/cycles/monotone.py --count 3000`` draws loops, takes barriers or waits away, lengthens the round
trip, multiplies conflicts, and prints the cases in which the loop gets slower, or faster, than it may (``--allowed``).
``--seed N`` prints one loop and all its ratios. No emulator runs: the streams of the waves are built here, with the LDS
passes and cache lines that each instruction is to have.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from amdwarp.asm import Program, parse
from amdwarp.cycles import Parameters, Trace, load, simulate
from amdwarp.cycles.issue import Op
from amdwarp.cycles.queues import FAR
from amdwarp.cycles.trace import GroupTrace, Touched, WaveTrace
from amdwarp.cycles.unit import Unit
from amdwarp.cycles.wave import Group, Simd, Wave

sys.path.insert(0, str(Path(__file__).parent))
from conftest import build

#: Beyond this a change is no tie.
ALLOWED = 1.03
#: Without the wandering round trip, which is drawn at moments that move when the program changes.
P = load("gfx950").replace(vmem_jitter_clk=0)

TIMES = 12
#: What a loop ends with.
LOOP_END = ("s_sub_u32 s10, s10, 1", "s_cmp_lg_u32 s10, 0", "s_cbranch_scc1 loop")
WAITS, BARRIER = ("s_waitcnt",), ("s_barrier",)


@dataclass(frozen=True)
class Step:
    """One instruction of a loop, and what it touches."""

    text: str
    touched: Touched | None = None


@dataclass
class Drawn:
    """A loop.

    Attributes:
        steps: its body, without counter and branch.
        waves: of a workgroup.
        resident: workgroups.
        held: the second half of the waves starts one barrier late, as in ping-pong.
        times: iterations.
    """

    steps: list[Step]
    waves: int
    resident: int
    held: bool = False
    times: int = TIMES

    @functools.cached_property
    def program(self) -> Program:
        """The loop between a barrier on either side, as a program."""
        lines = ["s_barrier", "loop:", *(step.text for step in self.steps), *LOOP_END]
        return parse(build([*lines, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_barrier"], waves=self.waves))

    def trace(self, keep: Callable[[int, Step], bool] = lambda at, step: True, factor: int = 1) -> Trace:
        """The streams of all waves.

        Args:
            keep: whether an instruction of the body stays. Where no barrier does, no wave is held back either.
            factor: of the LDS passes.
        """
        held = self.held and any(step.text in BARRIER and keep(at, step) for at, step in enumerate(self.steps))
        end = len(self.steps) + 1
        touched = [step.touched for step in self.steps]
        worse = [t if t is None or not t.passes else replace(t, passes=t.passes * factor) for t in touched]
        kept = [at for at, step in enumerate(self.steps) if keep(at, step)]
        pcs = [*(at + 1 for at in kept), *range(end, end + len(LOOP_END))] * self.times
        tail = end + len(LOOP_END)
        each: list[Touched | None] = [*(worse[at] for at in kept), *([None] * len(LOOP_END))] * self.times
        waves = []
        for number in range(self.waves):
            late = held and number >= self.waves // 2
            before, behind = [0] * late, [tail + 1] * (held and not late)
            stream = before + pcs + [tail] + behind + [tail + 2]
            waves.append(WaveTrace(stream, [None] * late + each + [None] * (len(stream) - late - len(each))))
        return Trace(self.program, [GroupTrace((0, 0, 0), waves)], (self.resident,), 0)


# Drawing


def _span(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def _read(width: int, at: int, factor: int) -> Step:
    words = width // 4
    size = {4: "b32", 8: "b64", 12: "b96", 16: "b128"}[width]
    passes = len(P.lds["read", width].phases) * factor
    return Step(f"ds_read_{size} {_span(64 + 4 * (at % 8), words)}, v2", Touched(passes=passes))


def _write(width: int, factor: int) -> Step:
    size = {4: "b32", 8: "b64", 12: "b96", 16: "b128"}[width]
    passes = len(P.lds["write", width].phases) * factor
    return Step(f"ds_write_{size} v2, {_span(8, width // 4)}", Touched(passes=passes))


def _load(at: int, lines: int) -> Step:
    return Step(f"buffer_load_dwordx4 {_span(96 + 4 * (at % 4), 4)}, v1, s[4:7], 0 offen", Touched(lines=lines))


def _copy(lines: int) -> Step:
    return Step("buffer_load_dwordx4 v1, s[4:7], 0 offen lds", Touched(lines=lines, copied=1024))


def _store(lines: int) -> Step:
    return Step("buffer_store_dwordx4 v[8:11], v1, s[4:7], 0 offen", Touched(lines=lines))


def _mfma(large: bool, at: int) -> Step:
    if large:
        c = _span(128 + 16 * (at % 4), 16)
        return Step(f"v_mfma_f32_32x32x16_f16 {c}, v[8:11], v[12:15], {c}")
    c = _span(32 + 4 * (at % 8), 4)
    return Step(f"v_mfma_f32_16x16x32_f16 {c}, v[8:11], v[12:15], {c}")


def _valu(rng: random.Random, at: int) -> Step:
    d = 20 + at % 8
    forms = (f"v_add_f32 v{d}, v8, v9", f"v_exp_f32 v{d}, v8", f"v_mul_lo_u32 v{d}, v8, v9")
    return Step(
        rng.choices((*forms, f"v_pk_mul_f32 {_span(200 + 2 * (at % 8), 2)}, v[8:9], v[10:11]"), (6, 3, 1, 2))[0]
    )


def _shape(rng: random.Random) -> tuple[int, int, bool]:
    """Waves, workgroups, held: one to eight waves a SIMD."""
    waves = rng.choice((4, 4, 8, 8, 8, 16))
    most = 32 // waves
    return waves, min(most, rng.choice((1, 1, 1, 2, 2, 4))), waves >= 8 and rng.random() < 0.4


def _mixed(rng: random.Random) -> list[Step]:
    """Runs of one kind after another, waits and barriers between."""
    steps: list[Step] = []
    for _ in range(rng.randint(3, 10)):
        if rng.random() < 0.3:
            text = rng.choice((f"s_waitcnt vmcnt({rng.choice((0, 2, 6, 12))})", "", "s_barrier"))
            steps.append(Step(text or f"s_waitcnt lgkmcnt({rng.choice((0, 2, 6))})"))
            continue
        steps += _run(rng, rng.choice(("mfma", "valu", "salu", "read", "write", "load", "copy", "store")))
    return steps


def _run(rng: random.Random, kind: str) -> list[Step]:
    width, large = rng.choice((4, 8, 12, 16, 16, 16)), rng.random() < 0.4
    factor, lines = rng.choice((1, 1, 1, 1, 2, 4, 8)), rng.choice((8, 8, 8, 16))
    forms: dict[str, Callable[[int], Step]] = {
        "mfma": lambda at: _mfma(large, at),
        "valu": lambda at: _valu(rng, at),
        "salu": lambda at: Step("s_add_u32 s11, s12, 1"),
        "read": lambda at: _read(width, at, factor),
        "write": lambda at: _write(width, factor),
        "load": lambda at: _load(at, lines),
        "copy": lambda at: _copy(lines),
        "store": lambda at: _store(lines),
    }
    return [forms[kind](at) for at in range(rng.randint(1, 10))]


def _woven(rng: random.Random, first: list[Step], second: list[Step]) -> list[Step]:
    """Two streams, each in its order."""
    steps, a, b = [], list(first), list(second)
    while a or b:
        steps.append((a if rng.random() * (len(a) + len(b)) < len(a) else b).pop(0))
    return steps


def _kernel(rng: random.Random) -> list[Step]:
    """Stages of a matrix product or of attention: fetch, read, multiply, with waits, priorities and barriers."""
    large = rng.random() < 0.5
    stages, steps = rng.choice((1, 2, 2, 4)), []
    copies = rng.random() < 0.7
    for _ in range(stages):
        fetch = [_copy(8) if copies else _load(at, 8) for at in range(rng.choice((0, 1, 2, 4)))]
        width, factor = rng.choice((4, 8, 8, 16, 16, 16)), rng.choice((1, 1, 1, 2, 4))
        reads = [_read(width, at, factor) for at in range(rng.choice((0, 2, 4, 8, 12)))]
        if not copies and fetch:
            width = rng.choice((8, 16))
            reads += [_write(width, rng.choice((1, 1, 2))) for _ in range(len(fetch) * 16 // width)]
        multiply = [_mfma(large, at) for at in range(rng.choice((4, 8, 16)))]
        if rng.random() < 0.4:
            multiply = _woven(rng, multiply, [_valu(rng, at) for at in range(rng.randint(1, 12))])
        waits = [Step(f"s_waitcnt vmcnt({rng.choice((0, 2, 4, 8, 12))})")] if rng.random() < 0.5 else []
        local = [Step(f"s_waitcnt lgkmcnt({rng.choice((0, 0, 0, 4))})")]
        edge = [Step("s_barrier")] if rng.random() < 0.7 else []
        if rng.random() < 0.3:
            steps += _woven(rng, _woven(rng, fetch, reads), multiply) + local + waits + edge
            continue
        up, down = ([Step("s_setprio 1")], [Step("s_setprio 0")]) if rng.random() < 0.5 else ([], [])
        steps += up + _woven(rng, fetch, reads) + down + waits + edge + local + multiply
        steps += [Step("s_barrier")] if edge and rng.random() < 0.8 else []
    return steps


def draw(seed: int) -> Drawn:
    """The loop of a seed."""
    rng = random.Random(seed)
    while True:
        steps = _mixed(rng) if seed % 2 else _kernel(rng)
        waves, resident, held = _shape(rng)
        if 8 <= len(steps) <= 120:
            return Drawn(steps, waves, resident, held and any(s.text == "s_barrier" for s in steps))


# Checking


class Logged(Unit):
    """A unit that notes when each wave issues what, and when the data of each vector load arrive."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.issues: dict[int, list[int]] = {wave.number: [] for wave in self.waves}
        self.arrivals: list[int] = []
        load = self.vector.load

        def noted(t: int, clk: int, size: int) -> int:
            self.arrivals.append(load(t, clk, size))
            return self.arrivals[-1]

        self.vector.load = noted  # type: ignore[method-assign]

    def _advance(self, simd: Simd, wave: Wave, op: Op, t: int) -> None:
        self.issues[wave.number].append(t)
        super()._advance(simd, wave, op, t)


class Replayed(Unit):
    """A unit in which no wave issues anything, and no vector data arrive, before they did in a logged run."""

    def hold(self, logged: Logged, streams: Sequence[tuple[list[int], list[int]]]) -> None:
        """Take over the times of a run.

        Args:
            logged: the run.
            streams: for each wave of a workgroup its stream there, and here, which lacks some of it.
        """
        self.earliest: dict[int, list[int]] = {}
        for number, issues in logged.issues.items():
            there, here = streams[number % len(streams)]
            times = iter(zip(there, issues, strict=True))
            self.earliest[number] = [next(t for pc, t in times if pc == wanted) for wanted in here]
            self.waves[number].ready = self.waves[number].base = self.earliest[number][0]
        arrivals, load = iter(logged.arrivals), self.vector.load
        self.vector.load = lambda t, clk, size: max(load(t, clk, size), next(arrivals))  # type: ignore[method-assign]

    def _advance(self, simd: Simd, wave: Wave, op: Op, t: int) -> None:
        super()._advance(simd, wave, op, t)
        if wave.at < len(wave.stream):
            wave.ready = max(wave.ready, self.earliest[wave.number][wave.at])

    def _resume(self, group: Group, at: int) -> None:
        waiting = [wave for wave, _, _ in group.waiting]
        super()._resume(group, at)
        for wave in waiting:
            if wave.ready < FAR and wave.at < len(wave.stream):
                wave.ready = max(wave.ready, self.earliest[wave.number][wave.at])


@dataclass
class Version:
    """A loop as it is, or changed: a record and the parameters it is timed with."""

    loop: Drawn
    trace: Trace
    parameters: Parameters = P

    @functools.cached_property
    def clk(self) -> int:
        """Until the last wave of all workgroups has ended."""
        return simulate(self.trace, self.parameters, resident=self.loop.resident).total_clk


@dataclass
class Change:
    """A loop and the same with less to do, or with less delay: it may not be slower.

    Attributes:
        kind: ``barriers``, ``waits``, ``conflicts`` or ``round trip``.
        name: what has been taken away, or added to the other one.
        less, more: the two.
    """

    kind: str
    name: str
    less: Version
    more: Version

    @property
    def ratio(self) -> float:
        """How much slower the version with less to do is; at most 1 where all is well."""
        return self.less.clk / self.more.clk

    def replayed(self) -> float:
        """The same ratio if the version with less to do issues nothing, and gets no data, before the other one has.

        At most 1: what the other one does is possible here too. The rest of `ratio` then comes from the order alone, in
        which the oldest wave and arriving data go first; no rule of the model makes less work slower.
        """
        less, more, resident = self.less, self.more, self.more.loop.resident
        unit = Logged(more.parameters, more.trace, resident)
        total = unit.run().total_clk
        held = Replayed(less.parameters, less.trace, resident)
        waves = zip(more.trace.groups[0].waves, less.trace.groups[0].waves, strict=True)
        held.hold(unit, [(there.pcs, here.pcs) for there, here in waves])
        return held.run().total_clk / total


def changes(loop: Drawn) -> Iterator[Change]:
    """All changes that a loop allows."""
    plain = Version(loop, loop.trace())
    for kind, name in ((BARRIER, "barriers"), (WAITS, "waits")):
        places = [at for at, step in enumerate(loop.steps) if step.text.startswith(kind)]
        if not places:
            continue
        without = loop.trace(lambda at, step, places=places: at not in places)  # type: ignore[misc]
        yield Change(name, f"without {name}", Version(loop, without), plain)
        # one barrier less pairs the others of held waves differently, which is another program and not less of this one
        if len(places) > 1 and not (loop.held and name == "barriers"):
            gone = places[len(loop.steps) % len(places)]
            one = loop.trace(lambda at, step, gone=gone: at != gone)  # type: ignore[misc]
            yield Change(name, f"without {name[:-1]} {gone}", Version(loop, one), plain)
    if any(step.touched is not None and step.touched.passes for step in loop.steps):
        for factor in (2, 5, 16):
            yield Change("conflicts", f"conflicts x {factor}", plain, Version(loop, loop.trace(factor=factor)))
    if any(step.touched is not None and step.touched.lines for step in loop.steps):
        for longer in (1.2, 2.0, 4.0):
            later = P.replace(vmem_round_trip_clk=P.vmem_round_trip_clk * longer)
            yield Change("round trip", f"round trip x {longer:g}", plain, Version(loop, plain.trace, later))


def one_of_each(seed: int) -> list[Change]:
    """One change of each kind that the loop of a seed allows, drawn."""
    by_kind: dict[str, list[Change]] = {}
    for change in changes(draw(seed)):
        by_kind.setdefault(change.kind, []).append(change)
    return [random.Random(f"{seed} {kind}").choice(found) for kind, found in by_kind.items()]


def search(seeds: Sequence[int], allowed: float, every: bool) -> tuple[int, list[Change], list[Change]]:
    """Look at the loops of some seeds, printing what is beyond.

    Args:
        seeds: of the loops.
        allowed: ratio that is still a tie.
        every: look at all changes of a loop, and not at one of each kind.

    Returns:
        changes looked at, those beyond what is allowed, and those of them that stay so in the other's order.
    """
    looked, beyond, faults = 0, [], []
    start = time.process_time()
    for number, seed in enumerate(seeds):
        for change in changes(draw(seed)) if every else one_of_each(seed):
            looked += 1
            if change.ratio > allowed:
                beyond.append(change)
                again = change.replayed()
                if again > 1:
                    faults.append(change)
                first, second = (100 * (ratio - 1) for ratio in (change.ratio, again))
                print(f"seed {seed}: {change.name}: {first:+.1f} %, in the other's order {second:+.1f} %", flush=True)
        if number % 100 == 99:
            print(f"# {number + 1} loops, {time.process_time() - start:.0f} s of CPU time", flush=True)
    return looked, beyond, faults


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="loops")
    parser.add_argument("--first", type=int, default=0, help="seed of the first loop")
    parser.add_argument("--allowed", type=float, default=ALLOWED, help="ratio that is still a tie")
    parser.add_argument("--every", action="store_true", help="all changes of a loop, and not one of each kind")
    parser.add_argument("--seed", type=int, help="print one loop and its ratios")
    args = parser.parse_args()
    if args.seed is not None:
        loop = draw(args.seed)
        print(f"{loop.waves} waves, {loop.resident} workgroups{', half of the waves held back' * loop.held}")
        for at, step in enumerate(loop.steps):
            print(f"{at:3} {step.text:70} {step.touched or ''}")
        for change in changes(loop):
            print(f"{change.name}: {100 * (change.ratio - 1):+.1f} %, {100 * (change.replayed() - 1):+.1f} %")
        return 0
    looked, beyond, faults = search(range(args.first, args.first + args.count), args.allowed, args.every)
    percent = 100 * (args.allowed - 1)
    print(f"{args.count} loops, {looked} changes: {len(beyond)} beyond {percent:.1f} %, {len(faults)} in that order")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
