#!/usr/bin/env python3
"""Asks tessera whatif what a change would do, does it, and compares.

    python3 bench/whatif_loop.py [--tessera FILE] [--only TEXT] [--iterations 30] [--repeats 5] [--machine FILE]

Each row records a run before the change, asks `tessera whatif` about it, changes the run, and measures it again: another
rate of the link between two network namespaces (wants root, `ip` and `tc`; without, these rows are left out and named),
the commands' own flags (--overlap off, --bucket-bytes, --mesh, --dtype), and operators that are added to the model or
left out of it. Before and after take turns, `--repeats` times, and the medians of what each pair says of the change and of
the error count, since machines drift. A row is good if the prediction is off by no more than a fifth of the measured
change, or by 2 % of the measured step. "Spread" is by how much the errors of pairs differ (interquartile range over the
step): a row whose error is less than that may be good or off by chance. The exit code
is 1 unless all are. Rows whose changed program has kernels of other shapes take their times from --machine, which is
measured first unless it is given. Needs Python's onnx and numpy; nothing else may run on the machine meanwhile.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from predictions import LIMIT, ROOT, on_two_hosts

WIDTH, ROWS, LAYERS = 512, 512, 6


def model_of(path, products=0):
    """Layers of two products, which tensor parallelism splits, and a third; in each, so many products more. An even number
    of them leaves the layouts of all others as they are."""
    random = numpy.random.default_rng(1)
    nodes, weights, last = [], [], "x"

    def add(op, inputs, name, **attributes):
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def weight(name, rows, columns):
        values = (random.standard_normal((rows, columns)) / rows**0.5).astype(numpy.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    for i in range(LAYERS):
        up = add("MatMul", [last, weight(f"w_up.{i}", WIDTH, 4 * WIDTH)], f"up.{i}")
        down = add("MatMul", [add("Relu", [up], f"relu.{i}"), weight(f"w_down.{i}", 4 * WIDTH, WIDTH)], f"down.{i}")
        last = add("Add", [last, down], f"sum.{i}")
        for k in range(1 + products):
            last = add("MatMul", [last, weight(f"w_mix.{i}.{k}", WIDTH, WIDTH)], f"mix.{i}.{k}")
    graph = helper.make_graph(nodes, "layers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, [ROWS, WIDTH])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def done(command, environment=None):
    said = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment)
    if said.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{said.stderr}")
    return said.stdout


def step_of(trace):
    """Milliseconds: the median duration of a trace's runs."""
    return statistics.median(run["dur"] for run in json.load(open(trace))["tessera"]["runs"]) * 1e-3


class Here:
    """Ranks that are threads, or whatever the options say."""

    def __init__(self, tessera):
        self.tessera = tessera

    def record(self, words, trace):
        done([self.tessera, *words, "--quiet", "--profile", trace])


class Namespaces:
    """Two ranks over Gloo, whose link has this rate."""

    def __init__(self, tessera, rate):
        self.tessera, self.rate = tessera, rate

    def record(self, words, trace):
        command = [self.tessera, *words, "--engine", "gloo", "--quiet", "--profile", trace]
        on_two_hosts(command, self.rate, 29778)


def two_more_products(trace):
    """Two operators as long as the first mix after each mix. Where an all-reduce has the name of one, it counts, too."""
    events = [event for event in json.load(open(trace))["traceEvents"] if event["ph"] == "X"]
    product = statistics.median(event["dur"] for event in events if event["name"] == "mix.0.0") * 1e-3
    words = []
    for i in range(LAYERS):
        kinds = {event["args"]["op"] for event in events if event["name"] == f"mix.{i}.0"}
        words += ["--insert", f"mix.{i}.0={2 * product / len(kinds)}"]
    return words


def rows_of(arguments, folder):
    """name, where the first runs and what, where the second runs and what, the question (of the first's trace)"""
    here = Here(arguments.tessera)
    plain, longer = model_of(os.path.join(folder, "plain.onnx")), model_of(os.path.join(folder, "longer.onnx"), products=2)
    bench = ["--iterations", str(arguments.iterations), "--threads", "1"]
    tp = ["bench", plain, "--mesh", "tp=2", *bench]
    train = ["train", plain, "--loss", "mse", "--data", os.path.join(folder, "data.npz"), "--mesh", "dp=2",
             "--threads", "1"]
    machine = ["--machine", arguments.machine]
    numpy.savez(os.path.join(folder, "data.npz"), x=numpy.ones((9, ROWS, WIDTH), numpy.float32),
                labels=numpy.ones((9, ROWS, WIDTH), numpy.float32))
    yield ("two operators more in each layer, threads", here, tp, here, ["bench", longer, "--mesh", "tp=2", *bench],
           two_more_products)
    yield ("two operators fewer in each layer, threads", here, ["bench", longer, "--mesh", "tp=2", *bench], here, tp,
           lambda trace: ["--drop", "mix.*.1", "--drop", "mix.*.2"])
    yield "without overlap, threads", here, train, here, [*train, "--overlap", "off"], lambda trace: ["--overlap", "off"]
    yield ("one bucket, threads", here, train, here, [*train, "--bucket-bytes", "256M"],
           lambda trace: ["--bucket-bytes", "256M", *machine])
    yield ("one rank instead of two, threads", here, tp, here, ["bench", plain, "--mesh", "tp=1", *bench],
           lambda trace: ["--ranks", "tp=1", *machine])
    yield "bfloat16, threads", here, tp, here, [*tp, "--dtype", "bf16"], lambda trace: ["--dtype", "bf16", *machine]
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        print("left out: rows over Gloo, which want root, ip and tc", file=sys.stderr)
        return
    slow, fast = Namespaces(arguments.tessera, "1gbit"), Namespaces(arguments.tessera, "2gbit")
    slower = Namespaces(arguments.tessera, "500mbit")
    yield "a link of twice the rate, tp=2 over Gloo", slow, tp, fast, tp, lambda trace: ["--scale", "link:gloo=2"]
    yield "a link of half the rate, tp=2 over Gloo", slow, tp, slower, tp, lambda trace: ["--scale", "link:gloo=0.5"]
    yield "a link of half the rate, dp=2 over Gloo", slow, train, slower, train, lambda trace: ["--scale", "link:gloo=0.5"]
    yield ("without overlap, dp=2 over Gloo", slow, train, slow, [*train, "--overlap", "off"],
           lambda trace: ["--overlap", "off"])
    yield ("one bucket, dp=2 over Gloo", slow, train, slow, [*train, "--bucket-bytes", "256M"],
           lambda trace: ["--bucket-bytes", "256M", *machine])


def row(arguments, folder, name, first, before_words, second, after_words, question):
    before, after, off, replays = [], [], [], []
    for repeat in range(arguments.repeats):
        traces = [os.path.join(folder, f"{side}.{repeat}.json") for side in ("before", "after")]
        first.record(before_words, traces[0])
        second.record(after_words, traces[1])
        answer = json.loads(done([arguments.tessera, "whatif", traces[0], *question(traces[0]), "--json"]))
        before.append(step_of(traces[0]))
        after.append(step_of(traces[1]))
        off.append(before[-1] * answer["step_ms"] / answer["measured_ms"] - after[-1])
        replays.append(answer["replay_error"])
    was, is_now, error = statistics.median(before), statistics.median(after), statistics.median(off)
    change = statistics.median(b - a for a, b in zip(before, after))
    spread = numpy.subtract(*numpy.percentile(off, [75, 25])) / is_now
    good = abs(error) <= max(0.2 * abs(change), 0.02 * is_now)
    print(f"{name:48} {was:8.2f} {is_now + error:9.2f} {is_now:9.2f} {100 * error / is_now:7.1f}% {100 * spread:7.1f}% "
          f"{100 * statistics.median(replays):7.1f}%  {'good' if good else 'off'}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tessera", default=os.path.join(ROOT, "build", "tessera"))
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--machine", default="", help="a machine file; by default, this machine is calibrated")
    arguments = parser.parse_args()
    goods = []
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.machine:
            arguments.machine = os.path.join(folder, "machine.json")
            done([arguments.tessera, "calibrate", "-o", arguments.machine, "--quick", "--quiet"])
        print(f"{'change':48} {'before':>8} {'predicted':>9} {'measured':>9} {'error':>8} {'spread':>8} {'replay':>8}")
        for each in rows_of(arguments, folder):
            if arguments.only in each[0]:
                goods.append(row(arguments, folder, *each))
    if not goods:
        sys.exit("no row is left")
    print(f"{sum(goods)} of {len(goods)} within a fifth of the change or 2 % of the step")
    sys.exit(0 if all(goods) else 1)


if __name__ == "__main__":
    main()
