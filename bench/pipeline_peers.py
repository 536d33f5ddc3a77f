#!/usr/bin/env python3
"""Times training steps of GPT-2 small in pipelines of two ranks with one thread each: Tessera, and PyTorch's
torch.distributed.pipelining over Gloo, on the same two cores, taking turns.

    python3 -m venv venv && venv/bin/pip install torch transformers onnx onnxscript numpy
    venv/bin/python bench/pipeline_peers.py [--tessera build/tessera] [--rounds 3] [--steps 4] [--engines ...]

A step takes 8 micro-batches of 1 x 128 tokens, AdamW, clip 1.0, and a head that is not tied to the embedding. --engines names
what runs, separated by commas: "tessera 1f1b" or any other schedule that --pipeline takes, with further options behind it;
"torch gpipe", "torch 1f1b", "torch interleaved:2", "torch zb-interleaved:2", "torch zb-v"; "tessera one" and "torch one" are
one rank of one thread, which takes the micro-batches one after the other. Tessera cuts the model into stages by itself;
PyTorch's stages have the numbers of blocks in pipeline_peers_torch.py, which take about equal times. An engine that cannot run
is left out, and says why.

Prints the machine and the versions, then for each engine the median step (the slowest rank counts), how many times as fast as
one rank of the same engine and as the fastest pipeline of PyTorch it is, the peak memory of all its processes together
(libraries' pages that they share count once), and how far its losses are from those of the first engine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from train_peers import CannotRun, machine, run_together
from train_peers_step import CLIP, CORES, DECAY, RATE

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(HERE, "pipeline_peers_torch.py")
PARTS, TOKENS = 8, 8 * 128
TORCH = ("one", "gpipe", "1f1b", "interleaved:2", "zb-interleaved:2", "zb-v")
TESSERA = ("one", "gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v")
ENGINES = [f"tessera {name}" for name in TESSERA] + [f"torch {name}" for name in TORCH]
LOSSES_AGREE = 1e-4


class Engine:

    def __init__(self, name):
        self.name = name
        self.family, self.schedule, *self.options = name.split()
        if self.family not in ("tessera", "torch") or (self.family == "torch" and self.schedule not in TORCH):
            sys.exit(f"there is no engine '{name}'; there are {', '.join(ENGINES)}")
        self.results, self.failed = [], False

    def alone(self):
        return self.schedule == "one"

    def median(self):
        return statistics.median(time for result in self.results for time in result["times"][1:])

    def run(self, binary, folder, steps):
        with tempfile.TemporaryDirectory() as scratch:
            run = self.run_tessera if self.family == "tessera" else self.run_torch
            self.results.append(run(scratch, binary, folder, steps))

    def run_tessera(self, scratch, binary, folder, steps):
        metrics = os.path.join(scratch, "metrics.jsonl")
        mesh = [] if self.alone() else ["--mesh", "pp=2", "--pipeline", self.schedule]
        peaks = run_together([[
            binary, "train", os.path.join(folder, "model.onnx"), "--data", os.path.join(folder, "data.npz"), "--steps",
            str(steps), "--micro-batches", str(PARTS), *mesh, "--threads", "1", "--optimizer",
            f"adamw:weight_decay={DECAY}", "--lr", str(RATE), "--clip", str(CLIP), "--metrics", metrics, "--quiet",
            *self.options
        ]], [{}])
        with open(metrics) as file:
            lines = [json.loads(line) for line in file]
        return {"times": [TOKENS / line["tokens_per_s"] for line in lines], "losses": [line["loss"] for line in lines],
                "peak": sum(peaks)}

    def run_torch(self, scratch, _, folder, steps):
        results = [os.path.join(scratch, f"{rank}.json") for rank in range(1 if self.alone() else CORES)]
        peaks = run_together([[sys.executable, WORKER, self.schedule, folder, str(steps), result] for result in results],
                             [{"RANK": str(rank), "OMP_NUM_THREADS": "1", "MEETING": os.path.join(scratch, "meeting"),
                               "GLOO_SOCKET_IFNAME": "lo"} for rank in range(len(results))])
        parts = []
        for result in results:
            with open(result) as file:
                parts.append(json.load(file))
        return {"times": [max(times) for times in zip(*(part["times"] for part in parts))],
                "losses": parts[0]["losses"],
                "peak": sum(peaks) - sum(sorted(part["shared"] for part in parts)[:-1])}


def versions(tessera):
    import torch
    info = subprocess.run([tessera, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    return f"{info.stdout.strip()}, PyTorch {torch.__version__}"


def ratio(times, own, what):
    return f"{min(times) / own:5.2f}x {what}" if times else " " * (7 + len(what))


def print_table(engines, tessera):
    engines = [engine for engine in engines if engine.results]
    print(f"\n{machine()}\n{versions(tessera)}")
    if not engines:
        return
    losses = engines[0].results[0]["losses"]
    print(f"losses of {engines[0].name}: " + " ".join(f"{loss:.5f}" for loss in losses))
    medians = {engine.name: engine.median() for engine in engines}
    peers = [medians[e.name] for e in engines if e.family == "torch" and not e.alone()]
    for engine in engines:
        own = medians[engine.name]
        one = [medians[f"{engine.family} one"]] if f"{engine.family} one" in medians else []
        away = max(abs(a - b) for a, b in zip(losses, engine.results[0]["losses"]))
        print(f"  {engine.name:26s} {own * 1e3:8.0f} ms  {ratio(one, own, 'one rank')}  {ratio(peers, own, 'PyTorch')}  "
              f"{max(result['peak'] for result in engine.results) / 2**30:5.2f} GiB  losses differ by {away:.1e}"
              + ("" if away <= LOSSES_AGREE else ": TOO MUCH"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="of each round, 2 to 16; the first warms up")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--folder", help="where the model is kept between runs")
    options = parser.parse_args()
    if not 2 <= options.steps <= 16:
        parser.error("--steps is 2 to 16")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    engines = [Engine(name) for name in options.engines.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or scratch
        os.makedirs(folder, exist_ok=True)
        if not all(os.path.exists(os.path.join(folder, name)) for name in ("model.onnx", "weights.npz", "data.npz")):
            subprocess.run([sys.executable, WORKER, "prepare", folder], check=True)
        for _ in range(options.rounds):
            for engine in engines:
                if engine.failed:
                    continue
                try:
                    engine.run(options.tessera, folder, options.steps)
                except CannotRun as error:
                    print(f"{engine.name}: left out: {error}", file=sys.stderr)
                    engine.failed, engine.results = True, []
    print_table(engines, options.tessera)


if __name__ == "__main__":
    main()
