#!/usr/bin/env python3
"""Times tessera beside ONNX Runtime on the same inputs, taking turns, and prints the table of ratios.

    python3 -m venv venv && venv/bin/pip install onnxruntime numpy
    venv/bin/python bench/peers.py --models DIR [--rounds 5] [--iterations 5] [--json FILE]

DIR holds NAME/model.onnx: bench/export_models.py writes gpt2-small, bert-base, llama-300m, vit-base and resnet50 there,
by either exporter, and the decoders; minilm is all-MiniLM-L6-v2 exported with its weights; tiny is in this repository.
What is missing is left out. Both engines have --threads threads (2). A round runs one engine, then the other; of each,
the median over all rounds counts. A ratio above 1 says that tessera is faster.

Decoders get one token and a cache of 128, and in the columns "growing" a cache that is longer by one at each run. Their
floor is the time that the memory takes to bring what a run reads of the weights, and its inputs and outputs.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# model, batch, sequence, the mesh of two ranks
BASES = [
    ("tiny", 3, 37, "tp=2"),
    ("minilm", 3, 17, "tp=2"),
    ("gpt2-small", 1, 128, "tp=2"),
    ("gpt2-small", 4, 256, "tp=2"),
    ("bert-base", 1, 128, "tp=2"),
    ("bert-base", 8, 128, "tp=2"),
    ("llama-300m", 1, 128, "tp=2"),
    ("llama-300m", 4, 256, "tp=2"),
    ("vit-base", 1, 0, "tp=2"),
    ("resnet50", 1, 0, None),
    ("resnet50", 8, 0, "dp=2"),
]
TORCHSCRIPT = [(model + "-torchscript", *rest) for model, *rest in BASES if model.split("-")[0] in ("gpt2", "bert", "llama", "vit")]
CASES = BASES + TORCHSCRIPT
DECODERS = ["gpt2-small-decode", "llama-300m-decode"]
PAST = 128


def path_of(model, folder):
    return os.path.join(ROOT, "examples", "tiny", "model.onnx") if model == "tiny" else os.path.join(folder, model, "model.onnx")


def inputs_of(session, batch, sequence, past=0):
    """Random inputs: token ids below 200, masks of ones, segments of zeros, normal floats."""
    random = np.random.default_rng(0)
    inputs = {}
    for port in session.get_inputs():
        dims = [d if isinstance(d, int) else batch if "batch" in d else past if "past" in d else sequence
                for d in port.shape]
        if "int" not in port.type:
            inputs[port.name] = random.standard_normal(dims).astype(np.float32)
        elif "mask" in port.name:
            inputs[port.name] = np.ones(dims, np.int64)
        elif "type" in port.name:
            inputs[port.name] = np.zeros(dims, np.int64)
        else:
            inputs[port.name] = random.integers(0, 200, dims)
    return inputs


def peer_session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def enough(session, inputs, least):
    """Runs of half a second, at least `least`: few runs of a small model say little."""
    session.run(None, inputs)
    start = time.perf_counter()
    session.run(None, inputs)
    return max(least, math.ceil(0.5 / (time.perf_counter() - start)))


def peer_times(session, inputs, iterations, grow=lambda inputs: inputs):
    times = []
    for _ in range(max(1, iterations // 5) + iterations):
        inputs = grow(inputs)
        start = time.perf_counter()
        session.run(None, inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return times[-iterations:]


def grown(inputs):
    """The same with a cache that is longer by one."""
    return {name: np.concatenate([x, x[:, :, :1]], axis=2) if x.ndim == 4 else x for name, x in inputs.items()}


def our_report(binary, path, inputs, iterations, options):
    command = [binary, "bench", path, *(["--inputs", inputs] if inputs else []), "--json", "--iterations", str(iterations),
               "--warmup", str(max(2, iterations // 5))] + options
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def medians(times):
    return {way: statistics.median(values) for way, values in times.items() if values}


def measure_decoder(arguments, model):
    path = path_of(model, arguments.models)
    if not os.path.exists(path):
        print(f"{model}: there is no {path}", file=sys.stderr)
        return None
    session = peer_session(path, arguments.threads)
    inputs = inputs_of(session, 1, 1, PAST)
    iterations = enough(session, inputs, arguments.iterations)
    one, two = ["--threads", str(arguments.threads)], ["--threads", "1", "--mesh", "tp=2"]
    growing = ["--grow", "past"]
    ways = {"tessera": one, "growing": one + growing, "bfloat16": one + ["--dtype", "bfloat16"]}
    if arguments.threads == 2:
        ways |= {"two ranks": two, "two ranks growing": two + growing}
    times = {way: [] for way in ["peer", "peer growing", "floor", *ways]}
    sizes = ["--shapes", f"batch=1,sequence=1,past={PAST}"]
    for _ in range(arguments.rounds):
        times["peer"] += peer_times(session, inputs, iterations)
        times["peer growing"] += peer_times(session, inputs, iterations, grown)
        for way, options in ways.items():
            report = our_report(arguments.tessera, path, None, iterations, options + sizes)
            times[way].append(report["latency_ms"]["median"])
            if way == "tessera":
                times["floor"].append(report["floor_ms"])
    return {"model": model, **medians(times)}


def measure(arguments, model, batch, sequence, mesh):
    path = path_of(model, arguments.models)
    if not os.path.exists(path):
        print(f"{model}: there is no {path}", file=sys.stderr)
        return None
    session = peer_session(path, arguments.threads)
    inputs = inputs_of(session, batch, sequence)
    iterations = enough(session, inputs, arguments.iterations)
    ways = {"tessera": ["--threads", str(arguments.threads)]}
    if mesh and arguments.threads == 2:
        ways["two ranks"] = ["--threads", "1", "--mesh", mesh]
    ways["bfloat16"] = ["--threads", str(arguments.threads), "--dtype", "bfloat16"]
    times = {way: [] for way in ["peer", *ways]}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "inputs.npz")
        np.savez(file, **inputs)
        for _ in range(arguments.rounds):
            times["peer"] += peer_times(session, inputs, iterations)
            for way, options in ways.items():
                report = our_report(arguments.tessera, path, file, iterations, options)
                times[way].append(report["latency_ms"]["median"])
    row = medians(times)
    shape = f"{batch}×{sequence}" if sequence else str(batch)
    return {"model": model, "shape": shape, "mesh": mesh, "instruction_sets": report["instruction_sets"], **row}


def text_of(value):
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def measure_decoders(arguments):
    models = [model for model in DECODERS if arguments.only in model]
    rows = [row for row in (measure_decoder(arguments, model) for model in models) if row]
    columns = [("floor", "floor ms"), ("peer", "ONNX Runtime ms"), ("tessera", "tessera ms"), ("two ranks", "two ranks ms"),
               ("bfloat16", "bfloat16 ms"), ("peer growing", "growing: ONNX Runtime ms"), ("growing", "tessera ms"),
               ("two ranks growing", "two ranks ms")]
    if rows:
        print("\n| model | " + " | ".join(title for _, title in columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for row in rows:
        print(f"| {row['model']} | " + " | ".join(text_of(row[key]) if key in row else "" for key, _ in columns) + " |")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True, help="the folder of full-size models")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5, help="of each engine in a round, at least; small models run half a second")
    parser.add_argument("--only", default="", help="models whose name holds this")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()

    rows = []
    print("| model | batch×sequence | ONNX Runtime ms | tessera ms | ratio | two ranks ms | one / two | bfloat16 ms | gain |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model, batch, sequence, mesh in CASES:
        if arguments.only not in model:
            continue
        row = measure(arguments, model, batch, sequence, mesh)
        if not row:
            continue
        rows.append(row)
        ours = row["tessera"]
        ranks = [text_of(row["two ranks"]), f"{ours / row['two ranks']:.2f}"] if "two ranks" in row else ["", ""]
        cells = [model, row["shape"], text_of(row["peer"]), text_of(ours), f"{row['peer'] / ours:.2f}", *ranks,
                 text_of(row["bfloat16"]), f"{ours / row['bfloat16']:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    if rows:
        mean = math.exp(statistics.mean(math.log(row["peer"] / row["tessera"]) for row in rows))
        print(f"\nGeometric mean of the ratios {mean:.2f}; {arguments.threads} threads, {', '.join(rows[0]['instruction_sets'])}; "
              f"ONNX Runtime {onnxruntime.__version__}")
    decoders = measure_decoders(arguments)
    rows += decoders
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
