#!/usr/bin/env python3
"""Times tessera on a machine of its own and beside busy processes, taking turns, and prints the ratios.

    python3 bench/busy_machine.py [--models DIR] [--busy 2] [--rounds 3] [--tessera build/tessera] [--before OTHER]

A busy process counts in a loop, at the same priority; there is one for each core (--busy), so that a program that uses
all cores may at best take twice as long. "Run" is the mean latency of `tessera bench` (a median would hide pauses of
milliseconds, which only some short runs have), "train" and "four trainings"
are whole commands. Of each figure, the median over all rounds counts. DIR holds NAME/model.onnx as
bench/export_models.py writes them; what is missing is left out. With --before, another build's binary takes its turns
as well, and "idle" compares the two.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TINY = os.path.join(ROOT, "examples", "tiny", "model.onnx")
LIMIT = 120  # seconds that a command may take

# model, sizes
MODELS = [("tiny", "batch=1,sequence=8"), ("tiny", "batch=3,sequence=37"), ("gpt2-small", "batch=1,sequence=128"),
          ("gpt2-small", "batch=4,sequence=256"), ("bert-base", "batch=1,sequence=128"), ("bert-base", "batch=8,sequence=128"),
          ("llama-300m", "batch=1,sequence=128"), ("llama-300m", "batch=4,sequence=256"), ("vit-base", "batch=1"),
          ("resnet50", "batch=1"), ("resnet50", "batch=8"), ("gpt2-small-decode", "batch=1,sequence=1,past=128"),
          ("llama-300m-decode", "batch=1,sequence=1,past=128")]
WAYS = {"": [], "tp=2": ["--mesh", "tp=2"], "tp=2, processes": ["--mesh", "tp=2", "--spawn", "2"]}


class BusyProcesses:
    """Busy processes while it lives."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(self.count)]
        time.sleep(0.3 if self.count else 0)

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def seconds_of(commands):
    """The time until all of the commands, started at once, have ended."""
    start = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for command in commands]
    for command, process in zip(commands, running):
        try:
            _, errors = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            for other in running:
                other.kill()
            return float("inf")
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{errors.decode()}")
    return time.perf_counter() - start


def latency(binary, path, sizes, options, iterations):
    command = [binary, "bench", path, "--shapes", sizes, "--json", "--iterations", str(iterations), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return float("inf")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["latency_ms"]["mean"]


def training(binary, text):
    return [binary, "train", TINY, "--data", text, "--batch", "4", "--sequence", "32", "--steps", "40", "--quiet"]


def cases(arguments, text):
    """Pairs of a title and a function that takes a binary and gives milliseconds."""
    for model, sizes in MODELS:
        path = TINY if model == "tiny" else os.path.join(arguments.models or "", model, "model.onnx")
        if arguments.only not in model or not os.path.exists(path):
            continue
        iterations = 200 if model == "tiny" else arguments.iterations
        for way, options in WAYS.items():
            if way and (model == "resnet50" or "decode" in model):
                continue
            title = f"run {model} {sizes}" + (f", {way}" if way else "")
            yield title, lambda binary, p=path, s=sizes, o=options, i=iterations: latency(binary, p, s, o, i)
    if arguments.only in "training":
        yield "train tiny, 40 steps", lambda binary: 1e3 * seconds_of([training(binary, text)])
        yield "four trainings at once", lambda binary: 1e3 * seconds_of([training(binary, text)] * 4)
        run = lambda binary: [binary, "run", TINY, "--repeat", "20", "--quiet"]
        yield "run tiny, 20 times", lambda binary: 1e3 * seconds_of([run(binary)])
        yield "eight such runs at once", lambda binary: 1e3 * seconds_of([run(binary)] * 8)


def measure(arguments, time_of):
    """Medians of milliseconds: of each binary, idle and beside busy processes."""
    binaries = [arguments.tessera] + ([arguments.before] if arguments.before else [])
    times = {(binary, busy): [] for binary in binaries for busy in (0, arguments.busy)}
    for _ in range(arguments.rounds):
        for (binary, busy), figures in times.items():
            with BusyProcesses(busy):
                figures.append(time_of(binary))
    return {way: statistics.median(figures) for way, figures in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="the folder of full-size models")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--before", help="the binary of another build, which takes turns")
    parser.add_argument("--busy", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5, help="runs of a full-size model in a round")
    parser.add_argument("--only", default="", help="models whose name holds this")
    arguments = parser.parse_args()

    columns = ["idle ms", "busy ms", "busy / idle"]
    if arguments.before:
        columns += ["before: idle ms", "busy ms", "busy / idle", "idle / before"]
    print("| case | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text.txt")
        with open(text, "w") as file:
            file.write("THE SOFTWARE IS PROVIDED AS IS, WITHOUT WARRANTY OF ANY KIND. " * 400)
        for title, time_of in cases(arguments, text):
            figures = measure(arguments, time_of)
            cells = []
            for binary in [arguments.tessera] + ([arguments.before] if arguments.before else []):
                idle, busy = figures[binary, 0], figures[binary, arguments.busy]
                cells += [f"{idle:.4g}", f"{busy:.4g}", f"{busy / idle:.2f}"]
            if arguments.before:
                cells.append(f"{figures[arguments.tessera, 0] / figures[arguments.before, 0]:.3f}")
            print(f"| {title} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
