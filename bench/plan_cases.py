#!/usr/bin/env python3
"""Runs all plans that `tessera plan` shows for a case, in turn, and compares the one it chose with the fastest.

    python3 bench/plan_cases.py [--models DIR] [--only TEXT] [--rounds 3] [--best 12] [--json FILE]

Cases: models and training steps on 2 and 4 ranks of this machine. The machine is calibrated first, and `tessera plan`
measures what it lacks. Then each of the --best plans (all layouts, if there are fewer) runs once in every round, in an order
that turns from round to round; the medians over the rounds count. "chosen / best" is what is lost by following the plan.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from predictions import ROOT, run, small_llama

# name, model of --models ("": a small Llama, which is made), sizes, devices, options of a training step
CASES = [("gpt2-small, 2 ranks", "gpt2-small", "batch=4,sequence=64", 2), ("gpt2-small, 4 ranks", "gpt2-small", "batch=4,sequence=64", 4),
         ("bert-base, 2 ranks", "bert-base", "batch=2,sequence=128", 2), ("llama-300m, 2 ranks", "llama-300m", "batch=2,sequence=64", 2),
         ("training a Llama, 2 ranks", "", "", 2), ("training a Llama, 4 ranks", "", "", 4)]
TRAINING = ["--loss", "cross-entropy", "--output", "logits", "--optimizer", "adamw", "--clip", "1"]
BATCH, SEQUENCE, STEPS = 8, 64, 6


def measured_ms(arguments, machine, model, sizes, text, plan):
    if sizes:
        found = run([arguments.tessera, "bench", model, "--shapes", sizes, "--plan", plan, "--machine", machine, "--iterations", "7",
                     "--json"])
        return found["latency_ms"]["median"]
    found = run([arguments.tessera, "train", model, "--data", text, "--batch", str(BATCH), "--sequence", str(SEQUENCE), "--steps",
                 str(STEPS), "--init", "*=normal:0.02", *TRAINING[2:], "--plan", plan, "--machine", machine, "--json"])
    return found["measured"]["step_ms"]


def case_row(arguments, case, machine, folder):
    name, model_name, sizes, devices = case
    model, text = arguments.llama
    if model_name:
        model = os.path.join(arguments.models, model_name, "model.onnx")
        if not os.path.exists(model):
            print(f"left out: {model} does not exist", file=sys.stderr)
            return None
    asked = ["--shapes", sizes or f"batch={BATCH},sequence={SEQUENCE}"] + ([] if sizes else ["--train", *TRAINING])
    found = run([arguments.tessera, "plan", model, "--devices", str(devices), "--machine", machine, "--best", str(arguments.best),
                 "--search-time", str(arguments.search_time), *asked, "--json"])
    plans = []
    for i, option in enumerate(found["best"]):
        plans.append(os.path.join(folder, f"plan{i}.json"))
        option["plan"].pop("shapes", None)
        with open(plans[-1], "w") as file:
            json.dump(option["plan"], file)
    times = [[] for _ in plans]
    for turn in range(arguments.rounds):
        for i in range(len(plans)):
            at = (i + turn) % len(plans) if turn % 2 == 0 else len(plans) - 1 - i
            times[at].append(measured_ms(arguments, machine, model, sizes, text, plans[at]))
    medians = [statistics.median(each) for each in times]
    fastest = min(range(len(plans)), key=lambda i: medians[i])
    return {"case": name, "plans": len(plans), "chosen": found["best"][0]["text"], "chosen_ms": medians[0],
            "predicted_ms": found["best"][0]["step_ms"], "fastest": found["best"][fastest]["text"], "fastest_ms": medians[fastest],
            "all": [[option["text"], option["step_ms"], ms] for option, ms in zip(found["best"], medians)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=os.path.join(ROOT, "bench", "models"))
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--machine", default="", help="a machine file; by default, this machine is calibrated")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--best", type=int, default=12, help="plans that run")
    parser.add_argument("--search-time", type=int, default=60)
    parser.add_argument("--json", default="", help="a file for all figures")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        arguments.llama = small_llama(folder, 4, 256)
        machine = arguments.machine or os.path.join(folder, "machine.json")
        if not arguments.machine:
            subprocess.run([arguments.tessera, "calibrate", "-o", machine, "--quiet"], check=True)
        print(f"{'case':28} {'plans':>5} {'chosen':>10} {'predicted':>10} {'fastest':>10} {'chosen / fastest':>17}  chosen; fastest")
        for case in CASES:
            if arguments.only not in case[0]:
                continue
            row = case_row(arguments, case, machine, folder)
            if not row:
                continue
            rows.append(row)
            print(f"{row['case']:28} {row['plans']:5} {row['chosen_ms']:8.2f}ms {row['predicted_ms']:8.2f}ms {row['fastest_ms']:8.2f}ms "
                  f"{row['chosen_ms'] / row['fastest_ms']:17.3f}  {row['chosen']}; {row['fastest']}", flush=True)
    if not rows:
        sys.exit("no case is left")
    worst = max(rows, key=lambda row: row["chosen_ms"] / row["fastest_ms"])
    print(f"worst: {worst['case']}, {worst['chosen_ms'] / worst['fastest_ms']:.3f}")
    for text, predicted, measured in worst["all"]:
        print(f"  predicted {predicted:8.2f} ms, measured {measured:8.2f} ms: {text}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
