#!/usr/bin/env python3
"""Runs a program that `tessera shard --lower=primitives --rank-id=input` (or constant) wrote under ONNX's reference
evaluator: one thread a rank, and nothing added but Send and Recv over queues. With tokens or without (--order=position):
the evaluator runs nodes in the order of the file.

    reference_cluster.py FOLDER --inputs in.npz [--expect out.npz] [--outputs out.npz]

Inputs and outputs are whole arrays by the names in the manifest. With --expect, the answers must agree within 2e-5 of
the largest value; exit code 1 if they do not. Needs Python with numpy and onnx; nothing of tessera's.
"""
import argparse
import collections
import json
import pathlib
import queue
import re
import sys
import threading

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

TOLERANCE = 2e-5
PATIENCE = 300  # seconds for one message: the evaluator is slow, and ranks take turns


class Mailboxes:
    """One queue for each pair of ranks."""

    def __init__(self):
        self.queues = collections.defaultdict(queue.Queue)
        self.lock = threading.Lock()
        self.failed = threading.Event()

    def between(self, sender, receiver):
        with self.lock:
            return self.queues[sender, receiver]

    def take(self, sender, receiver):
        box = self.between(sender, receiver)
        for _ in range(PATIENCE * 10):
            if self.failed.is_set():
                raise RuntimeError("another rank failed")
            try:
                return box.get(timeout=0.1)
            except queue.Empty:
                pass
        raise RuntimeError(f"rank {receiver} waits in vain for rank {sender}")


def evaluator_of_rank(rank, boxes):
    """The reference evaluator, and two operators."""

    class Send(OpRun):
        op_domain = "tessera.comm"

        def _run(self, data, peer, *token, value=None, step=None, **_):
            if peer >= 0:
                boxes.between(rank, int(peer)).put((data.copy(), value, step))
            return token or (data,)  # without tokens it has no result, but the evaluator wants one

    class Recv(OpRun):
        op_domain = "tessera.comm"

        def _run(self, peer, shape, *token, dtype=None, value=None, step=None, **_):
            shape, kind = tuple(int(n) for n in shape), onnx.helper.tensor_dtype_to_np_dtype(dtype)
            if peer < 0:
                return np.zeros(shape, kind), *token
            data, sent, sent_step = boxes.take(int(peer), rank)
            if (sent, sent_step, data.shape, data.dtype) != (value, step, shape, kind):
                raise RuntimeError(
                    f"rank {rank} wants {value!r} step {step} {kind}{shape}, but rank {peer} sent "
                    f"{sent!r} step {sent_step} {data.dtype}{data.shape}"
                )
            return data, *token

    class Evaluator(ReferenceEvaluator):
        def __init__(self, proto, **options):
            super().__init__(proto, new_ops=[Send, Recv], **options)

    return Evaluator


# --- Which part of a whole array a rank holds (docs/written_programs.md).


def extent_of(text, symbols):
    """An extent of the manifest: 64, batch, 2*batch + 1."""
    names = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max}
    return int(eval(text, {"__builtins__": {}}, {**names, **symbols}))


def interval(size, axes, coordinates):
    """First and end of a rank's share of `size` units: balanced, the larger shares first; several axes nested."""
    first, extent = 0, size
    for axis, count in axes:
        index = coordinates[axis]
        first += index * (extent // count) + min(index, extent % count)
        extent = extent // count + (index < extent % count)
    return first, first + extent


def indices_of(dim, extent, mesh, coordinates, symbols):
    """The indices of one dimension that a rank holds: "-", "batch{dp}", "3·4{tp}·16"."""
    if "{" not in dim:
        return np.arange(extent)
    parts = []
    for part in re.split(r"[·*](?![^{]*\})", dim):
        size, _, axes = part.partition("{")
        axes = [axis.strip() for axis in axes.rstrip("}").split(",")] if axes else []
        if any(":" in axis for axis in axes):
            raise SystemExit(f"{dim}: sub-axes are not understood here")
        parts.append((extent_of(size.strip(), symbols), [(axis, mesh[axis]) for axis in axes]))
    indices = np.zeros(1, np.int64)
    for size, axes in parts:
        first, end = interval(size, axes, coordinates)
        indices = (indices[:, None] * size + np.arange(first, end)).ravel()
    return indices


def split_of(port):
    """The brackets of a sharding, without what may follow them."""
    return port["sharding"].strip().partition(" at(")[0]


def lives_on(port, coordinates):
    """Whether a rank has any of it: "[-] at(pp=1, dp=0)" is on the ranks with these indices only."""
    _, _, place = port["sharding"].strip().rstrip(")").partition(" at(")
    entries = (entry.split("=") for entry in place.split(",") if entry)
    return all(coordinates[axis.strip()] == int(index) for axis, index in entries)


def share_of(port, dims, mesh, coordinates, symbols):
    """An index for numpy: the elements of a whole array of extents `dims` that a rank holds."""
    entries, depth, text = [], 0, ""
    for c in split_of(port)[1:-1] + ",":
        depth += (c in "{(") - (c in "})")
        if c == "," and depth == 0:
            entries.append(text.strip())
            text = ""
        else:
            text += c
    if not dims:
        return ()
    return np.ix_(*[indices_of(d, n, mesh, coordinates, symbols) for d, n in zip(entries, dims)])


class Cluster:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text())
        axes = [axis.split("=") for axis in self.manifest["mesh"].split(",") if axis]
        self.mesh = {name: int(size) for name, size in axes}
        self.ranks = int(np.prod(list(self.mesh.values()), dtype=np.int64))

    def coordinates(self, rank):
        coordinates = {}
        for name, size in reversed(self.mesh.items()):
            rank, coordinates[name] = divmod(rank, size)
        return coordinates

    def entry_of(self, kind, rank):
        for entry in self.manifest[kind]:
            for item in entry["ranks"].split(","):
                first, _, last = item.partition("-")
                if int(first) <= rank <= int(last or first):
                    return entry
        raise SystemExit(f"the manifest has no {kind} for rank {rank}")

    def model_in(self, file, rank):
        model = onnx.load(self.folder / file, load_external_data=False)
        if self.manifest["weights"]:  # ranks of one model read weights of their own
            weights = self.entry_of("weights", rank)["file"]
            for initializer in model.graph.initializer:
                for entry in initializer.external_data:
                    if entry.key == "location":
                        entry.value = weights
        onnx.load_external_data_for_model(model, str(self.folder))
        return model

    def symbols_of(self, inputs):
        symbols = {}
        for port in self.manifest["inputs"]:
            for text, extent in zip(port["shape"], inputs[port["name"]].shape):
                if text.isidentifier():
                    symbols[text] = extent
        return symbols

    def run_rank(self, rank, boxes, inputs, symbols):
        entry = self.entry_of("models", rank)
        model = self.model_in(entry["file"], rank)
        place = self.coordinates(rank)
        feeds = {}
        for port in self.manifest["inputs"]:
            whole = inputs[port["name"]]
            feeds[port["value"]] = whole[share_of(port, whole.shape, self.mesh, place, symbols)]
        for given in model.graph.input:
            if given.name.startswith("symbol:"):
                feeds[given.name] = np.array(symbols[given.name[len("symbol:"):]], np.int64)
            elif given.name == "tessera.rank":
                feeds[given.name] = np.array(rank, np.int64)
        if "init" in entry:  # its outputs are inputs of each step
            once = evaluator_of_rank(rank, boxes)(self.model_in(entry["init"]["file"], rank))
            feeds.update(zip(once.output_names, once.run(None, {n: feeds[n] for n in once.input_names})))
        evaluator = evaluator_of_rank(rank, boxes)(model)
        return dict(zip(evaluator.output_names, evaluator.run(None, feeds)))

    def run(self, inputs):
        symbols, boxes = self.symbols_of(inputs), Mailboxes()
        results, failures = [None] * self.ranks, []

        def work(rank):
            try:
                results[rank] = self.run_rank(rank, boxes, inputs, symbols)
            except Exception as error:  # the first one is what went wrong
                failures.append((rank, error))
                boxes.failed.set()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise RuntimeError(f"rank {failures[0][0]} failed") from failures[0][1]
        return self.assemble(results, symbols)

    def assemble(self, results, symbols):
        outputs = {}
        for port in self.manifest["outputs"]:
            dims = [extent_of(text, symbols) for text in port["shape"]]
            whole = None
            for rank in reversed(range(self.ranks)):  # of replicas, the first rank's counts
                if not lives_on(port, self.coordinates(rank)):
                    continue
                local = results[rank][port["value"]]
                whole = np.zeros(dims, local.dtype) if whole is None else whole
                whole[share_of(port, dims, self.mesh, self.coordinates(rank), symbols)] = local
            outputs[port["name"]] = whole
        return outputs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--expect", help="whole outputs to compare with")
    parser.add_argument("--outputs", help="a .npz file to write")
    arguments = parser.parse_args()
    outputs = Cluster(arguments.folder).run(dict(np.load(arguments.inputs)))
    if arguments.outputs:
        np.savez(arguments.outputs, **outputs)
    good = True
    if arguments.expect:
        for name, expected in np.load(arguments.expect).items():
            difference = np.abs(outputs[name].astype(np.float64) - expected).max(initial=0)
            largest = np.abs(expected).max(initial=0)
            good &= bool(difference <= TOLERANCE * largest)
            print(f"{name}: largest difference {difference:.2e}, of the largest value {difference / (largest or 1):.1e}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
