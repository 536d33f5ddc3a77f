#!/usr/bin/env python3
"""Scores predictions of `tessera simulate` against published measurements:

    score_tables.py --rows ROWS.tsv [--machine FILE] [--tessera PATH]

ROWS.tsv has a line of names and these columns: id, src, set, system, gpus, model, layers, hidden, ffn, heads, kv, vocab,
seq, gbs, mbs, dp, shard, tp, pp, vp, cp, ep, precision, recompute, schedule, step_s, tok_s_gpu, tflops_gpu, mfu_pct,
mem_gb, note. Builds each row's model and plan, simulates a step, and prints for each group (source, set, system): the
rows used; the error of the step's time; Kendall's rank correlation of predicted and measured rates (FLOP/s of the model
and device, so that rows of different batches and models compare); the regret: how much slower the plan is that the
predictions would have chosen than the best one; the error of the memory at the peak; and how often "fits" and "does not
fit" are right. Rows that lack what this needs are named and left out. Rows with stages are marked 'c': closed forms
around simulated stages.

--machine: for rows of the machine that the file names, instead of the file in share/tessera/machines; links between
hosts are scaled where a row's `system` says how fast they are.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import statistics
import sys
import tempfile

from score_rows import LeftOut, case_of
from score_steps import Simulator, predict


def kendall(pairs: list[tuple[float, float]]) -> float | None:
    """tau-b of pairs; None: too few, or all are equal."""
    agree = ties_a = ties_b = 0
    total = len(pairs) * (len(pairs) - 1) // 2
    for i, (a, b) in enumerate(pairs):
        for c, d in pairs[:i]:
            agree += ((a > c) - (a < c)) * ((b > d) - (b < d))
            ties_a += a == c
            ties_b += b == d
    scale = ((total - ties_a) * (total - ties_b)) ** 0.5
    return agree / scale if scale else None


class Scored:
    """A row with its prediction."""

    def __init__(self, row: dict, case, prediction):
        self.row, self.case, self.prediction = row, case, prediction

    @property
    def error(self) -> float | None:
        return self.prediction.seconds / self.case.seconds - 1 if self.case.seconds else None

    @property
    def memory_error(self) -> float | None:
        known = self.case.memory not in (None, float("inf"))
        return self.prediction.memory / self.case.memory - 1 if known else None

    @property
    def rates(self) -> tuple[float, float]:
        """FLOP/s of the model and device: predicted, measured."""
        return self.case.flops / self.prediction.seconds, self.case.flops / self.case.seconds


def percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{100 * value:{sign}.1f} %"


def spread(errors: list[float]) -> str:
    if not errors:
        return "-"
    worst = max(errors, key=abs)
    return f"median {percent(statistics.median(map(abs, errors)))}, worst {percent(worst, '+')}"


def group_summary(rows: list[Scored]) -> dict:
    timed = [row for row in rows if row.case.seconds]
    errors = [row.error for row in timed]
    rates = [row.rates for row in timed]
    summary = {"rows": len(rows), "timed": len(timed), "closed": sum(row.prediction.closed for row in rows),
               "median": statistics.median(map(abs, errors)) if errors else None,
               "bias": statistics.median(errors) if errors else None,
               "worst": max(errors, key=abs) if errors else None, "tau": kendall(rates) if len(rates) > 2 else None}
    if len(rates) > 1:
        summary["regret"] = max(measured for _, measured in rates) / max(rates)[1] - 1
    summary["memory"] = [row.memory_error for row in rows if row.memory_error is not None]
    fitting = [row.prediction.fits == (row.case.memory != float("inf")) for row in rows if row.case.memory]
    summary["fits"] = (sum(fitting), len(fitting))
    return summary


def print_group(name: tuple[str, str, str], rows: list[Scored], verbose: bool) -> dict:
    source, title, system = name
    summary = group_summary(rows)
    tau = "-" if summary["tau"] is None else f"{summary['tau']:.2f}"
    print(f"\n{title} · {system} · {source}")
    time = spread([row.error for row in rows if row.error is not None])
    print(f"  {len(rows)} rows ({summary['closed']} with stages); time {time}; "
          f"tau {tau}; regret {percent(summary.get('regret'))}")
    if summary["fits"][1]:
        print(f"  memory {spread(summary['memory'])}; fits or not: {summary['fits'][0]} of {summary['fits'][1]} right")
    for row in rows if verbose else []:
        case = row.case
        plan = f"{case.preset} {case.replicas}/{case.sharded} tp {case.tp} pp {case.pp} mbs {case.per_rank} x {case.micro_batches}"
        measured = f"{case.seconds:9.3f} s" if case.seconds else "        -  "
        memory = "" if case.memory is None else f"; {row.prediction.memory / 1e9:.1f} of {case.memory / 1e9:.1f} GB"
        mark = "c" if row.prediction.closed else " "
        print(f"  {row.row['id']:>5} {mark} {row.row['model']:<16} {plan:<44} {case.recompute:<9} "
              f"{row.prediction.seconds:9.3f} of {measured} {percent(row.error, '+'):>9}{memory}")
    return summary


def read_rows(path: str) -> list[dict]:
    """Each measurement once, though tables repeat some. Missing columns count as empty."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    names = ("id src set system gpus model layers hidden ffn heads kv vocab seq gbs mbs dp shard tp pp vp cp ep precision "
             "recompute schedule step_s tok_s_gpu tflops_gpu mfu_pct mem_gb note").split()
    seen, kept = set(), []
    for at, row in enumerate(rows):
        row = {name: (row.get(name) or "").strip() for name in names}
        row["id"] = row["id"] or f"line {at + 2}"
        same = tuple(row[name] for name in names if name not in ("id", "note"))
        if same not in seen:
            kept.append(row)
        seen.add(same)
    return kept


def scored(row: dict, simulator: Simulator) -> Scored | str:
    """The row with its prediction; or why it is left out."""
    try:
        case = case_of(row)
        return Scored(row, case, predict(case, simulator))
    except LeftOut as reason:
        return str(reason)
    except (ArithmeticError, LookupError, ValueError) as error:
        return f"not understood ({type(error).__name__}: {error})"


def score(rows: list[dict], simulator: Simulator, jobs: int) -> tuple[dict, dict]:
    """Groups of scored rows; and ids of rows left out, by reason."""
    groups: dict[tuple, list[Scored]] = {}
    left: dict[str, list[str]] = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for row, result in zip(rows, pool.map(lambda row: scored(row, simulator), rows)):
            if isinstance(result, str):
                left.setdefault(result, []).append(row["id"])
            else:
                groups.setdefault((row["src"].split("@")[0], row["set"], row["system"]), []).append(result)
    return groups, left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, metavar="FILE", help="measurements, as tab-separated values")
    parser.add_argument("--machine", metavar="FILE", help="a machine file, for rows of the machine that it names")
    parser.add_argument("--tessera", default="build/tessera", metavar="PATH", help="the command")
    parser.add_argument("--cache", metavar="FOLDER", help="keeps simulations of earlier calls; by default, in a "
                        "temporary folder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="simulations at the same time; by "
                        "default, as many as there are cores")
    parser.add_argument("--set", metavar="TEXT", help="only rows whose set or source contains this text")
    parser.add_argument("--json", metavar="FILE", help="write the summaries there, too")
    parser.add_argument("--verbose", action="store_true", help="print each row")
    options = parser.parse_args()
    rows = read_rows(options.rows)
    if options.set:
        rows = [row for row in rows if options.set in row["set"] + row["src"]]
    machine = json.loads(pathlib.Path(options.machine).read_text(encoding="utf-8")) if options.machine else None
    with tempfile.TemporaryDirectory() as temporary:
        simulator = Simulator(options.tessera, machine, pathlib.Path(options.cache or temporary))
        groups, left = score(rows, simulator, options.jobs)
    summaries = {" · ".join(name): print_group(name, found, options.verbose) for name, found in groups.items()}
    used = sum(map(len, groups.values()))
    print(f"\n{used} of {len(rows)} rows scored, {simulator.runs} simulations")
    for reason, ids in sorted(left.items(), key=lambda item: -len(item[1])):
        print(f"  left out, {reason}: {len(ids)} ({', '.join(ids)})")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(summaries, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
