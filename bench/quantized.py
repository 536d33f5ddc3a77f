#!/usr/bin/env python3
"""Times quantized models: tessera beside ONNX Runtime on the same inputs, taking turns.

    venv/bin/pip install onnx onnxruntime numpy
    venv/bin/python bench/quantized.py --models DIR [--only NAME] [--rounds 5] [--iterations 5]

DIR holds NAME/model.onnx, as for bench/peers.py, which says how to make them. ONNX Runtime's own tools quantize each
model: dynamically (8-bit weights and activations), and to weights of 4 bits in blocks of 32; networks of images
statically, with QuantizeLinear and DequantizeLinear around operators, or with QLinear operators. The first rows are the
models in float32. Of each engine, the median over all rounds counts; a ratio above 1 says that tessera is faster. The
floor is that of tessera bench: operators at the speed of floats, or the memory bringing what a run reads.
"""
import argparse
import logging
import os
import statistics
import tempfile

import numpy as np
import onnxruntime
from onnxruntime import quantization

import peers
from four_bits import four_bits

CASES = [("bert-base", 1, 128, 0), ("gpt2-small", 1, 128, 0), ("gpt2-small-decode", 1, 1, peers.PAST),
         ("llama-300m-decode", 1, 1, peers.PAST)]
IMAGES = [("resnet50", 1, 0, 0), ("resnet50", 8, 0, 0)]


class Sample(quantization.CalibrationDataReader):
    """One image, from which the static quantizer takes the ranges of activations."""

    def __init__(self, path):
        self.left = iter([peers.inputs_of(peers.peer_session(path, 0), 1, 0)])

    def get_next(self):
        return next(self.left, None)


def static(form):
    def quantize(source, target):
        quantization.quantize_static(source, target, Sample(source), quant_format=form, per_channel=True,
                                     activation_type=quantization.QuantType.QUInt8)
    return quantize



WAYS = {"float32": None, "dynamic 8-bit": quantization.quantize_dynamic, "4-bit blocks": four_bits}
WAYS_OF_IMAGES = {"float32": None, "static, QDQ": static(quantization.QuantFormat.QDQ),
                  "static, operators": static(quantization.QuantFormat.QOperator)}


def instruction_sets():
    with open("/proc/cpuinfo") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
    found = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if name in flags]
    return ", ".join(found) or "baseline"


def measure(arguments, path, batch, sequence, past):
    session = peers.peer_session(path, arguments.threads)
    inputs = peers.inputs_of(session, batch, sequence, past)
    iterations = peers.enough(session, inputs, arguments.iterations)
    ours, theirs, floors = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "inputs.npz")
        np.savez(file, **inputs)
        for _ in range(arguments.rounds):
            theirs += peers.peer_times(session, inputs, iterations)
            report = peers.our_report(arguments.tessera, path, file, iterations, ["--threads", str(arguments.threads)])
            ours.append(report["latency_ms"]["median"])
            floors.append(report["floor_ms"])
    return statistics.median(theirs), statistics.median(ours), statistics.median(floors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", required=True)
    parser.add_argument("--tessera", default=os.path.join(peers.ROOT, "build", "tessera"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    print("| model | way | floor ms | ONNX Runtime ms | tessera ms | ratio |\n|---|---|---|---|---|---|")
    for model, batch, sequence, past in CASES + IMAGES:
        source = peers.path_of(model, arguments.models)
        if arguments.only not in model or not os.path.exists(source):
            continue
        for way, quantize in (WAYS_OF_IMAGES if sequence == 0 else WAYS).items():
            with tempfile.TemporaryDirectory() as folder:
                path = source
                if quantize:
                    path = os.path.join(folder, "model.onnx")
                    quantize(source, path)
                theirs, ours, floor = measure(arguments, path, batch, sequence, past)
            images = f", {batch} images" if sequence == 0 else ""
            print(f"| {model}{images} | {way} | {floor:.2f} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.2f} |", flush=True)
    print(f"\n{arguments.threads} threads, {instruction_sets()}; ONNX Runtime {onnxruntime.__version__}")


if __name__ == "__main__":
    main()
