#!/usr/bin/env python3
"""Times recurrent layers: tessera beside ONNX Runtime on the same inputs, taking turns.

    venv/bin/pip install onnx onnxruntime numpy
    venv/bin/python bench/recurrent.py [--threads 1] [--rounds 5] [--iterations 20]

It makes its models: an LSTM or GRU of as many inputs as units, in float32 and, for the LSTM, quantized dynamically by
ONNX Runtime's own tool (a DynamicQuantizeLSTM). The median over all rounds counts for each engine; a ratio above 1 says
that tessera is faster. The floor is that of tessera bench: operators at the speed of floats, or the memory bringing
what a run reads.
"""
import argparse
import logging
import os
import statistics
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import peers
from quantized import instruction_sets

# Units, steps, sequences.
SIZES = [(256, 64, 1), (256, 64, 8), (1024, 32, 1)]
GATES = {"LSTM": 4, "GRU": 3}


def write_model(path, kind, units, steps, random):
    rows = GATES[kind] * units
    shapes = {"weights": (1, rows, units), "recurrence": (1, rows, units), "biases": (1, 2 * rows)}
    weights = [numpy_helper.from_array((random.standard_normal(shape) / 16).astype(np.float32), name)
               for name, shape in shapes.items()]
    node = helper.make_node(kind, ["x", *shapes], ["y"], hidden_size=units)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, "n", units])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, "n", units])
    graph = helper.make_graph([node], "recurrent", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def measure(arguments, path, inputs):
    session = peers.peer_session(path, arguments.threads)
    ours, theirs, floors = [], [], []
    file = path + ".npz"
    np.savez(file, **inputs)
    for _ in range(arguments.rounds):
        theirs += peers.peer_times(session, inputs, arguments.iterations)
        report = peers.our_report(arguments.tessera, path, file, arguments.iterations,
                                  ["--threads", str(arguments.threads)])
        ours.append(report["latency_ms"]["median"])
        floors.append(report["floor_ms"])
    return statistics.median(theirs), statistics.median(ours), statistics.median(floors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default=os.path.join(peers.ROOT, "build", "tessera"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=20)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    random = np.random.default_rng(0)
    print("| layer | units | steps | sequences | floor ms | ONNX Runtime ms | tessera ms | ratio |\n"
          "|---|---|---|---|---|---|---|---|")
    for kind in GATES:
        for units, steps, sequences in SIZES:
            with tempfile.TemporaryDirectory() as folder:
                plain = os.path.join(folder, "float.onnx")
                write_model(plain, kind, units, steps, random)
                ways = {kind: plain}
                if kind == "LSTM":  # the tool leaves a GRU as it is
                    ways["LSTM, dynamic 8-bit"] = os.path.join(folder, "codes.onnx")
                    quantization.quantize_dynamic(plain, ways["LSTM, dynamic 8-bit"])
                inputs = {"x": random.standard_normal((steps, sequences, units)).astype(np.float32)}
                for way, path in ways.items():
                    theirs, ours, floor = measure(arguments, path, inputs)
                    print(f"| {way} | {units} | {steps} | {sequences} | {floor:.2f} | {theirs:.2f} | {ours:.2f} | "
                          f"{theirs / ours:.2f} |", flush=True)
    print(f"\nthreads: {arguments.threads}; {instruction_sets()}; ONNX Runtime {onnxruntime.__version__}")


if __name__ == "__main__":
    main()
