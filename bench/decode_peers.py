#!/usr/bin/env python3
"""Times a step of decoding, tessera generate beside ONNX Runtime with IO binding, taking turns, and prints a table.

    python3 -m venv venv && venv/bin/pip install onnx onnxruntime numpy
    venv/bin/python bench/decode_peers.py --models DIR [--past 128 960] [--rounds 3] [--tokens 40] [--only NAME]

DIR holds NAME/model.onnx, which bench/export_models.py writes: gpt2-small-decode, llama-300m-decode. Beside each, this
program writes NAME-4bit/model.onnx, the same with weights of 4 bits. Both engines continue one text of so many tokens,
greedily, with --threads threads (2); the times are medians over all steps or, with --best, the shortest, for machines
that do other work, too. ONNX Runtime's caches stay in its memory: each run binds the outputs of the one before as
inputs. It has no bfloat16 on CPUs, so that there its float32 stands beside; "8-bit activations" of weights of 4 bits is
its accuracy_level 4, which is less exact (tessera does not read it). Two ranks have one thread each. The floor is the
time in which the memory delivers what a token needs of the weights; in brackets, with what caches hold. It is what
tessera measures of the memory, the median over all of its runs.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

from four_bits import four_bits

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = ["gpt2-small-decode", "llama-300m-decode"]
FORMS = ["float32", "bfloat16", "4-bit", "4-bit, bfloat16 caches"]
COLUMNS = ["model", "weights", "past", "floor ms", "ONNX Runtime ms", "8-bit activations ms", "tessera ms", "two ranks ms",
           "ONNX Runtime / tessera", "floor / tessera", "two ranks / one"]


def peer_session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def peer_steps(session, prompt, tokens):
    """Milliseconds of each step after the prompt, and the tokens chosen."""
    names = [port.name for port in session.get_inputs() if port.name != "input_ids"]
    shapes = {port.name: [d if isinstance(d, int) else 1 if i == 0 else 0 for i, d in enumerate(port.shape)]
              for port in session.get_inputs()}
    caches = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shapes[name], np.float32)) for name in names]
    ids, times, chosen = prompt, [], []
    for _ in range(tokens):
        start = time.perf_counter()
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", np.array([ids], np.int64))
        for name, cache in zip(names, caches):
            binding.bind_ortvalue_input(name, cache)
        for port in session.get_outputs():
            binding.bind_output(port.name, "cpu")
        session.run_with_iobinding(binding)
        logits, *caches = binding.get_outputs()
        token = int(logits.numpy()[0, -1].argmax())
        times.append((time.perf_counter() - start) * 1e3)
        ids = [token]
        chosen.append(token)
    return times[1:], chosen


def our_report(arguments, path, prompt, options):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "prompt.npy")
        np.save(file, np.array(prompt, np.int64))
        command = [arguments.tessera, "generate", path, "--prompt", file, "--max-new", str(arguments.tokens), "--json",
                   *options]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def model_of(arguments, name, form, accuracy=None):
    """The path of the model; one of 4-bit weights is made if it is not there yet."""
    source = os.path.join(arguments.models, name, "model.onnx")
    if not form.startswith("4-bit") or not os.path.exists(source):
        return source
    folder = os.path.join(arguments.models, name + ("-4bit" if accuracy is None else f"-4bit-accuracy{accuracy}"))
    path = os.path.join(folder, "model.onnx")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        four_bits(source, path, accuracy)
    return path


def measure(arguments, model, form, past):
    path = model_of(arguments, model, form)
    if not os.path.exists(path):
        print(f"{model}: there is no {path}", file=sys.stderr)
        return None
    peers = {"peer": peer_session(path, arguments.threads)}
    if form.startswith("4-bit"):
        peers["rounding"] = peer_session(model_of(arguments, model, form, 4), arguments.threads)
    prompt = np.random.default_rng(0).integers(0, 200, past).tolist()
    dtype = {"bfloat16": ["--dtype", form], FORMS[-1]: ["--cache-dtype", "bfloat16"]}.get(form, [])
    ways = {"tessera": ["--threads", str(arguments.threads), *dtype],
            "ranks": ["--threads", "1", "--mesh", "tp=2", *dtype]}
    times = {way: [] for way in [*peers, "floor", "all", *ways]}
    for _ in range(arguments.rounds):
        for name, session in peers.items():
            steps, tokens = peer_steps(session, prompt, arguments.tokens)
            times[name] += steps
            chosen = tokens if name == "peer" else chosen
        for way, options in ways.items():
            report = our_report(arguments, path, prompt, options)
            times[way].append(report["decode_ms"]["min" if arguments.best else "median"])
            times["floor"].append(report["floor_ms"])
            times["all"].append(report["floor_with_caches_ms"])
            if way == "tessera" and "bfloat16" not in form and report["texts"][0]["ids"] != chosen:
                print(f"{model}, {form}, {past}: the engines chose other tokens", file=sys.stderr)
    middle = min if arguments.best else statistics.median
    return {way: (statistics.median if way in ("floor", "all") else middle)(values) for way, values in times.items()}


def cells_of(model, form, past, row):
    ours = row["tessera"]
    return [model.removesuffix("-decode"), form, str(past),
            f"{row['floor']:.1f} ({row['all']:.1f})", f"{row['peer']:.1f}",
            f"{row['rounding']:.1f}" if "rounding" in row else "", f"{ours:.1f}", f"{row['ranks']:.1f}",
            f"{row['peer'] / ours:.2f}", f"{row['floor'] / ours:.2f} ({row['all'] / ours:.2f})",
            f"{row['ranks'] / ours:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True, help="the folder of full-size models")
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--past", type=int, nargs="+", default=[128, 1024 - 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--best", action="store_true", help="print the shortest times, not the medians")
    parser.add_argument("--only", default="", help="models whose name holds this")
    arguments = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for model in MODELS:
        for form in FORMS:
            for past in arguments.past:
                if arguments.only in f"{model}-{form}":
                    row = measure(arguments, model, form, past)
                    if row:
                        print("| " + " | ".join(cells_of(model, form, past, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
