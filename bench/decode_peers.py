#!/usr/bin/env python3
"""Times a step of decoding, tessera generate beside ONNX Runtime with IO binding, taking turns, and prints a table.

    python3 -m venv venv && venv/bin/pip install onnxruntime numpy
    venv/bin/python bench/decode_peers.py --models DIR [--past 128 1024] [--rounds 3] [--tokens 40] [--only NAME]

DIR holds NAME/model.onnx, which bench/export_models.py writes: gpt2-small-decode, llama-300m-decode. Both engines continue
one text of so many tokens, greedily, with --threads threads (2); the times are medians over all steps or, with --best, the
shortest, for machines that do other work, too. ONNX Runtime's
caches stay in its memory: each run binds the outputs of the one before as inputs. The floor is the time in which the
memory delivers the weights that a token needs.
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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = ["gpt2-small-decode", "llama-300m-decode"]


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
        command = [arguments.tessera, "generate", path, "--prompt", file, "--max-new", str(arguments.tokens), "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def measure(arguments, model, past):
    path = os.path.join(arguments.models, model, "model.onnx")
    if not os.path.exists(path):
        print(f"{model}: there is no {path}", file=sys.stderr)
        return None
    session = peer_session(path, arguments.threads)
    prompt = np.random.default_rng(0).integers(0, 200, past).tolist()
    one = ["--threads", str(arguments.threads)]
    ways = {"tessera": one, "two ranks": ["--threads", "1", "--mesh", "tp=2"], "bfloat16": one + ["--dtype", "bfloat16"]}
    times = {way: [] for way in ["peer", "floor", *ways]}
    for _ in range(arguments.rounds):
        steps, chosen = peer_steps(session, prompt, arguments.tokens)
        times["peer"] += steps
        for way, options in ways.items():
            report = our_report(arguments, path, prompt, options)
            times[way].append(report["decode_ms"]["min" if arguments.best else "median"])
            if way == "tessera":
                times["floor"].append(report["floor_ms"])
                if report["texts"][0]["ids"] != chosen:
                    print(f"{model}, {past}: the engines chose other tokens", file=sys.stderr)
    middle = min if arguments.best else statistics.median
    return {"model": model, "past": past, **{way: middle(values) for way, values in times.items()}}


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
    print("| model | past | floor ms | ONNX Runtime ms | tessera ms | two ranks ms | bfloat16 ms |\n|---|---|---|---|---|---|---|")
    for model in MODELS:
        for past in arguments.past:
            row = measure(arguments, model, past) if arguments.only in model else None
            if row:
                cells = [f"{row[way]:.1f}" for way in ("floor", "peer", "tessera", "two ranks", "bfloat16")]
                print("| " + " | ".join([model, str(past), *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
