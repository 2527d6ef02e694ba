"""Render docs/peers.md from the files of results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.bench.peers import prose
from tests.bench.peers.better import where_peers_are_better
from tests.bench.peers.figures import (
    Figure,
    ReadFigures,
    WriteFigures,
    arrow_failures,
    query_figures,
    read_figures,
    write_figures,
)
from tests.bench.peers.plot import plot
from tests.bench.peers.results import Pair, Results
from tests.bench.peers.sizes import BUCKETS, CORES, HEAP, LAST, LOGS, PARTITIONS, Sizes
from tests.bench.peers.systems import CHANGES, KAFKA, QUERIES, READS, ROWS, SYSTEMS, TRICKLE, WORKLOADS, System
from tests.bench.peers.targets import QUERY_TARGETS, TARGETS

_TITLES = {system.name: system.title for system in SYSTEMS}
_STATES = [*map(str, LOGS), "compacted"]

QueryFigures = Mapping[str, tuple[Figure, int]]
Pairs = Mapping[tuple[str, str], Pair]


def write_page(results: Results, sizes: Sizes, form: str, page: Path) -> None:
    """Write the page, and the plot beside it."""
    pairs = {
        (letter, system.name): results.load(letter, system.name)
        for letter in WORKLOADS
        for system in SYSTEMS
        if letter in system.workloads
    }
    page.write_text(render(pairs, sizes, form, page.with_suffix(".png").name), encoding="utf-8")
    plot(pairs, page.with_suffix(".png"))


def render(pairs: Pairs, sizes: Sizes, form: str, plot_name: str) -> str:
    """The page's text.

    Args:
        pairs: all of them; those without runs are told as not measured.
        sizes: what was written.
        form: name of the sizes.
        plot_name: file name of the plot.
    """
    writes = {
        key: write_figures(pair) for key, pair in pairs.items() if pair.finished and key[0] not in (READS, QUERIES)
    }
    reads = {key[1]: read_figures(pair) for key, pair in pairs.items() if pair.finished and key[0] == READS}
    queries = {key[1]: query_figures(pair) for key, pair in pairs.items() if pair.finished and key[0] == QUERIES}
    parts = [
        prose.INTRODUCTION,
        *_machine(pairs, sizes, form),
        f"![Rates, latencies and snapshots]({plot_name})",
        *_writes(ROWS, pairs, writes, f"{sizes.batches} batches of {sizes.rows:,} rows, {sizes.keys:,} keys."),
        *_writes(
            KAFKA,
            pairs,
            writes,
            f"{sizes.batches} batches of {sizes.rows:,} messages. The broker's processor time is not counted.",
        ),
        *_writes(
            CHANGES,
            pairs,
            writes,
            f"{sizes.batches} batches of {sizes.changes:,} events, {sizes.changed_keys:,} keys.",
        ),
        *_trickle(pairs, writes, sizes),
        *_reads(pairs, reads, sizes),
        *_queries(pairs, queries, sizes),
        "## Where a peer is better",
        "\n".join(where_peers_are_better(writes, reads)) or "In none of the figures above.",
        *_targets(writes, queries),
        *_settings(pairs),
    ]
    return "\n\n".join(parts) + "\n"


def _machine(pairs: Pairs, sizes: Sizes, form: str) -> Iterator[str]:
    runs = [run for pair in pairs.values() for run in pair.runs]
    yield "## Machine and versions"
    if not runs:
        yield "Nothing is measured yet."
        return
    machine, loads = runs[-1]["machine"], [run["load"] for run in runs]
    yield prose.MACHINE.format(
        **machine, low=min(loads), high=max(loads), form=form, runs=f"{sizes.runs} run{'s' if sizes.runs > 1 else ''}"
    )
    rows = []
    for system in SYSTEMS:
        found = [run["versions"] for key, pair in pairs.items() if key[1] == system.name for run in pair.runs]
        versions = ", ".join(f"{name} {text}" for name, text in sorted(found[0].items())) if found else "-"
        rows.append([system.title, versions])
    yield _table(["system", "runs on"], rows)


def _writes(letter: str, pairs: Pairs, writes: Mapping[tuple[str, str], WriteFigures], how: str) -> Iterator[str]:
    yield f"## {letter}: {WORKLOADS[letter]}"
    yield how
    reference = writes.get((letter, "lsm"))
    rows = []
    for system in _systems(letter):
        found = writes.get((letter, system.name))
        if found is None:
            rows.append([system.title, _missing(pairs[letter, system.name]), *[""] * 8])
            continue
        rows.append(
            [
                system.title,
                _spread(found.rate, 1e3, 0),
                f"{found.rate.median / reference.rate.median:.2f}" if reference else "-",
                _spread(found.processor, 1, 1),
                f"{found.batch_50:.2f}",
                f"{found.batch_99:.2f}",
                f"{found.size.median / 1e6:.1f}",
                f"{found.session.median:.1f}",
                f"{found.first.median:.1f}",
                _state(pairs[letter, system.name], system),
            ]
        )
    heads = ["system", "k rows/s", "x ours", "CPU s / M rows", "batch p50, s", "p99, s", "MB", "start, s"]
    yield _table([*heads, "first batch, s", "final state"], rows)


def _trickle(pairs: Pairs, writes: Mapping[tuple[str, str], WriteFigures], sizes: Sizes) -> Iterator[str]:
    yield f"## {TRICKLE}: {sizes.second_rows:,} rows a second for {sizes.seconds} s"
    yield prose.TRICKLE
    rows = []
    for system in _systems(TRICKLE):
        found = writes.get((TRICKLE, system.name))
        if found is None or found.age_50 is None or found.age_99 is None:
            rows.append([system.title, _missing(pairs[TRICKLE, system.name]), *[""] * 7])
            continue
        rows.append(
            [
                system.title,
                f"{found.batch_50:.2f}",
                f"{found.batch_99:.2f}",
                f"{found.age_50:.2f}",
                f"{found.age_99:.2f}",
                f"{found.batches.median:.0f}",
                f"{found.processor.median:.0f}",
                f"{found.size.median / 1e6:.1f}",
                _state(pairs[TRICKLE, system.name], system),
            ]
        )
    heads = ["system", "batch p50, s", "p99, s", "age p50, s", "p99, s", "batches", "CPU s / M rows", "MB"]
    yield _table([*heads, "final state"], rows)


def _reads(pairs: Pairs, reads: Mapping[str, ReadFigures], sizes: Sizes) -> Iterator[str]:
    yield f"## {READS}: {WORKLOADS[READS]}"
    logs = ", ".join(map(str, LOGS))
    yield prose.READS.format(base=f"{sizes.base:,}", log=f"{sizes.log:,}", logs=logs)
    rows, notes = [], []
    for system in _systems(READS):
        found = reads.get(system.name)
        if found is None:
            rows.append([system.title, _missing(pairs[READS, system.name]), *[""] * 4])
            continue
        compaction = found.compaction
        rows.append(
            [
                system.title,
                _snapshots(found, "spark"),
                _snapshots(found, "arrow"),
                f"{found.first_spark.median:.1f}" if found.first_spark else "-",
                _spread(compaction, 1, 1) if isinstance(compaction, Figure) else "-",
                f"{found.size.median / 1e6:.1f}" if found.size else "-",
            ]
        )
        notes += sorted({f"{system.title}: {text}" for text in _texts(found)})
        wrong = arrow_failures(pairs[READS, system.name])
        notes += [f"{system.title}, reader without Spark, final state: {wrong}"] if wrong else []
    heads = ["system", "Spark, s", "Arrow, s", "first read by Spark, s", "compaction of 20 logs, s", "MB after it"]
    yield _table(heads, rows)
    if notes:
        yield "\n".join(f"- {note}" for note in dict.fromkeys(notes))


def _queries(pairs: Pairs, queries: Mapping[str, QueryFigures], sizes: Sizes) -> Iterator[str]:
    yield f"## {QUERIES}: {WORKLOADS[QUERIES]}"
    yield prose.QUERIES.format(base=f"{sizes.base:,}", reads=sizes.reads, last=LAST)
    systems = _systems(QUERIES)
    names = list(dict.fromkeys(name for found in queries.values() for name in found))
    rows = []
    for name in names:
        cells = []
        for system in systems:
            figure = queries.get(system.name, {}).get(name)
            cells.append(f"{_spread(figure[0], 1, 2)}" if figure else _missing(pairs[QUERIES, system.name]))
        counts = {figure[1] for found in queries.values() for figure in [found.get(name)] if figure}
        rows.append([name, " or ".join(f"{count:,}" for count in sorted(counts)), *cells])
    yield _table(["query", "rows", *(system.title for system in systems)], rows)


def _snapshots(found: ReadFigures, reader: str) -> str:
    cells = [found.snapshots.get((state, reader), "-") for state in _STATES]
    if all(isinstance(cell, str) and not cell.startswith("failed") for cell in cells):
        return "-"
    return " / ".join(
        f"{cell.median:.2f}" if isinstance(cell, Figure) else "failed" if cell.startswith("failed") else "-"
        for cell in cells
    )


def _texts(found: ReadFigures) -> Iterator[str]:
    for (state, reader), cell in found.snapshots.items():
        if isinstance(cell, str):
            when = "" if not cell.startswith("failed") else f" ({state} logs)" if state.isdigit() else f" ({state})"
            yield f"{'Arrow' if reader == 'arrow' else 'Spark'}{when}: {cell}"
    if isinstance(found.compaction, str):
        yield f"compaction: {found.compaction}"


def _targets(writes: Mapping[tuple[str, str], WriteFigures], queries: Mapping[str, QueryFigures]) -> Iterator[str]:
    yield "## Targets"
    rows = []
    for target in TARGETS:
        ratio = target.ratio(writes)
        outcome = "not measured" if ratio is None else "reached" if target.reached(ratio) else "**missed**"
        rows.append(
            [
                target.workload,
                f"{target.name}: {_TITLES[target.ours]} / {_TITLES[target.other]}",
                "-" if ratio is None else f"{ratio:.2f}",
                f"{'≥' if target.least else '≤'} {target.bound:g}",
                outcome,
            ]
        )
    ours = queries.get("lsm", {})
    for other, bound in QUERY_TARGETS.items():
        for name, (seconds, _) in queries.get(other, {}).items():
            ratio = seconds.median / ours[name][0].median if name in ours else None
            outcome = "not measured" if ratio is None else "reached" if ratio >= bound else "**missed**"
            shown = "-" if ratio is None else f"{ratio:.2f}"
            said = f"speed, {name}: {_TITLES['lsm']} / {_TITLES[other]}"
            rows.append([QUERIES, said, shown, f"≥ {bound:g}", outcome])
    yield _table(["workload", "ratio of medians", "ratio", "target", ""], rows)


def _settings(pairs: Pairs) -> Iterator[str]:
    yield "## Settings"
    yield prose.SETTINGS.format(cores=CORES, heap=HEAP, buckets=BUCKETS, partitions=PARTITIONS)
    yield _table(["system", "written by"], [[_TITLES[name], text] for name, text in prose.WRITTEN_BY.items()])
    failed = [
        f"- {key[0]}, {_TITLES[key[1]]}: {pair.error.splitlines()[0]}" for key, pair in pairs.items() if pair.error
    ]
    if failed:
        yield "## What failed"
        yield "\n".join(failed)


# --- parts of tables --------------------------------------------------------------------------------------------------


def _systems(letter: str) -> list[System]:
    return [system for system in SYSTEMS if letter in system.workloads]


def _first_line(pair: Pair) -> str:
    return pair.error.splitlines()[0][:300]


def _missing(pair: Pair) -> str:
    return "**failed**" if pair.error else "not measured"


def _state(pair: Pair, system: System) -> str:
    if not system.keeps:
        return "all versions"
    return "equal; Arrow reader failed" if arrow_failures(pair) else "equal"


def _spread(figure: Figure, unit: float, digits: int) -> str:
    text = f"{figure.median / unit:,.{digits}f}"
    if figure.low == figure.high:
        return text
    return f"{text} ({figure.low / unit:,.{digits}f}-{figure.high / unit:,.{digits}f})"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
