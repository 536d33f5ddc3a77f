#!/usr/bin/env python3
"""Compares com.microsoft's QMoE with ONNX Runtime's kernel, on one rank and with experts and hidden elements split.

    quantized_experts.py TESSERA
    quantized_experts.py --write MODELS      writes the cases of tests/models/qmoe*

ONNX Runtime multiplies in float32 here: by default it rounds activations to 8 bits for some of these products. What its
CPU kernel does not take (fc3, columns of two halves) is compared with QMoE's definition in numpy, and so is all that it
takes. Exit code 1 if an answer is off by more than TOLERANCE of the largest value.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["ORT_QMOE_CPU_QNBIT_GEMM"] = "fp32"

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

TOLERANCE = 2e-5
MESHES = ["tp=1", "ep=2", "ep=3", "tp=2", "tp=3", "ep=2,tp=2", "dp=2,ep=2"]
STORED = {"qmoe": "4 bits, zero points", "qmoe-columns": "4 bits, whole columns, zero points"}


def cases():
    """Name, and what differs from 4-bit codes in blocks of 16, interleaved units, 2 of 6 experts."""
    yield "4 bits", {}
    yield "8 bits", {"bits": 8}
    yield "4 bits, zero points", {"zeros": True, "bias": True, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5}
    yield "4 bits, zero points of an odd number of blocks", {"zeros": True, "inner": 48}
    yield "8 bits, zero points", {"bits": 8, "zeros": True}
    yield "4 bits, blocks of 32", {"block": 32, "tokens": (1,)}
    yield "4 bits, whole columns", {"block": 0, "hidden": 36, "inner": 34}
    yield "4 bits, whole columns, zero points", {"block": 0, "zeros": True, "bias": True}
    yield "8 bits, whole columns, zero points", {"block": 0, "bits": 8, "zeros": True}
    yield "one token", {"tokens": (1,)}
    yield "many tokens", {"tokens": (3, 31), "zeros": True}
    yield "one expert of each token", {"k": 1, "normalize_routing_weights": 0}
    yield "relu", {"activation": "relu", "bias": True}
    yield "silu", {"activation": "silu"}
    yield "gelu", {"activation": "gelu", "bits": 8}
    yield "identity", {"activation": "identity"}
    yield "weights apart", {"apart": True}
    yield "weights apart, normalized", {"apart": True, "normalize_routing_weights": 1}
    yield "halves", {"fusion": 2, "zeros": True, "beyond": True}
    yield "fc3", {"activation": "silu", "fc3": True, "bias": True, "zeros": True, "beyond": True}
    yield "fc3 of other bits", {"fusion": 0, "fc3": True, "beyond": True, "widths": (8, 4, 4)}


class Mixture:
    def __init__(self, seed, bits=4, block=16, zeros=False, bias=False, activation="swiglu", fusion=1, fc3=False, apart=False,
                 tokens=(2, 5), experts=6, hidden=32, inner=64, k=2, beyond=False, widths=None, **attributes):
        self.random = np.random.default_rng(seed)
        self.block, self.beyond, self.k, self.inner = block, beyond, k, inner
        self.kind, self.fusion, self.more = activation, fusion if activation == "swiglu" else 0, attributes
        widths = widths or (bits,) * 3
        count = int(np.prod(tokens))
        x, scores = self.reals(*tokens, hidden), self.reals(count, experts)
        double = 2 if self.fusion else 1
        shapes = [(experts, double * inner, hidden), (experts, hidden, inner)] + [(experts, inner, hidden)] * fc3
        coded = [self.coded(shape, width, zeros) for shape, width in zip(shapes, widths)]
        biases = [self.reals(*shape[:2]) if bias else None for shape in shapes]
        operands = [x, scores]
        for (_, codes, scales, _), added in zip(coded, biases):
            operands += [codes, scales, added]
        operands += [None] * (11 - len(operands)) + [zero for *_, zero in coded] + [None] * (3 - len(coded))
        operands.append(self.random.random((count, experts)).astype(np.float32) if apart else None)
        while operands[-1] is None:
            operands.pop()
        self.operands = operands
        self.numbers, self.biases, self.weights = [matrix for matrix, *_ in coded], biases, operands[14] if apart else None
        self.attributes = {"k": k, "activation_type": activation, "swiglu_fusion": self.fusion, "expert_weight_bits": widths[1],
                           "normalize_routing_weights": 1, **attributes}
        for place, width in zip(("fc1", "fc2", "fc3"), widths):
            if width != widths[1]:
                self.attributes[f"{place}_expert_weight_bits"] = width
        if block:
            self.attributes["block_size"] = block
        if apart:
            self.attributes["normalize_routing_weights"] = attributes.get("normalize_routing_weights", 0)

    def reals(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def coded(self, shape, bits, zeros):
        """The matrix [experts, columns, rows], its codes, scales and zero points."""
        experts, columns, rows = shape
        blocks = rows // self.block if self.block else 1
        codes = self.random.integers(0, 2 ** bits, shape)
        scales = ((self.random.random((experts, columns, blocks)) + 0.5) * 2.0 ** -bits).astype(np.float32)
        zero = self.random.integers(0, 2 ** bits, scales.shape) if zeros else np.full(scales.shape, 2 ** (bits - 1))
        numbers = ((codes.reshape(experts, columns, blocks, -1) - zero[..., None]) * scales[..., None].astype(float)).reshape(shape)
        by_rows = (lambda value: value) if self.block else (lambda value: value[..., 0])
        return numbers, packed(codes, bits), by_rows(scales), packed(by_rows(zero), bits) if zeros else None

    def model(self, fixed=True):
        names = [f"x{i}" if value is not None else "" for i, value in enumerate(self.operands)]
        weights = [(name, value) for name, value in zip(names, self.operands) if name and name not in ("x0", "x1", "x14")]
        inputs = [(name, value) for name, value in zip(names, self.operands) if name in ("x0", "x1", "x14")]
        node = helper.make_node("QMoE", names, ["y"], domain="com.microsoft", **self.attributes)
        port = lambda name, value: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        graph = helper.make_graph([node], "mixture", [port(*each) for each in inputs], [port("y", self.operands[0])],
                                  [numpy_helper.from_array(value, name) for name, value in weights])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, ir_version=10, opset_imports=opsets), dict(inputs)

    def answer(self):
        x = self.operands[0].reshape(-1, self.operands[0].shape[-1]).astype(float)
        out = np.zeros_like(x)
        for t, scores in enumerate(self.operands[1].astype(float)):
            chosen = np.argsort(-scores, kind="stable")[:self.k]
            share = np.exp(scores[chosen] - scores.max())
            share /= share.sum()
            if self.weights is not None:
                share = self.weights[t, chosen].astype(float)
                share /= share.sum() if self.attributes["normalize_routing_weights"] else 1
            for e, part in zip(chosen, share):
                out[t] += part * self.network(e, x[t])
        return out.reshape(self.operands[0].shape)

    def network(self, e, x):
        product = lambda i, row: self.numbers[i][e] @ row + (self.biases[i][e] if self.biases[i] is not None else 0)
        g, u = product(0, x), 1
        if self.fusion == 1:
            g, u = g[0::2], g[1::2]
        elif self.fusion == 2:
            g, u = g[:self.inner], g[self.inner:]
        elif len(self.numbers) > 2:
            u = product(2, x)
        swish = lambda value, alpha=1.0: value / (1 + np.exp(-alpha * value))
        if self.kind == "swiglu":
            limit = self.more.get("swiglu_limit", np.inf)
            g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
            h = swish(g, self.more.get("activation_alpha", 1.0)) * (u + self.more.get("activation_beta", 0.0))
        else:
            h = {"relu": lambda v: np.maximum(v, 0), "silu": swish, "identity": lambda v: v,
                 "gelu": lambda v: v / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (v + 0.044715 * v ** 3)))}[self.kind](g) * u
        return product(1, h)


def packed(codes, bits):
    if bits == 8:
        return codes.astype(np.uint8)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros_like(codes[..., :1])], -1)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def distance(wanted, got):
    return np.abs(wanted - got).max() / np.abs(wanted).max()


def write(models):
    for folder, wanted in STORED.items():
        seed, form = next((seed, form) for seed, (name, form) in enumerate(cases()) if name == wanted)
        mixture = Mixture(seed, **form)
        model, inputs = mixture.model()
        to = pathlib.Path(models) / folder
        to.mkdir(exist_ok=True)
        onnx.save(model, to / "model.onnx")
        np.savez(to / "inputs_0.npz", **inputs)
        np.savez(to / "outputs_0.npz", y=onnxruntime.InferenceSession(to / "model.onnx").run(None, inputs)[0])


def main(tessera):
    failed = total = 0
    with tempfile.TemporaryDirectory() as room:
        room = pathlib.Path(room)
        for seed, (name, form) in enumerate(cases()):
            mixture = Mixture(seed, **form)
            model, inputs = mixture.model()
            onnx.save(model, room / "model.onnx")
            np.savez(room / "in.npz", **inputs)
            wanted = mixture.answer()
            if not mixture.beyond:
                theirs = onnxruntime.InferenceSession(room / "model.onnx", providers=["CPUExecutionProvider"]).run(None, inputs)[0]
                if not distance(wanted, theirs) <= TOLERANCE:
                    print(f"{name}: numpy is off by {distance(wanted, theirs):.1e} from ONNX Runtime")
                    failed += 1
                wanted = theirs
            for mesh in MESHES:
                total += 1
                run = subprocess.run([tessera, "run", room / "model.onnx", "--inputs", room / "in.npz", "--quiet", "--mesh", mesh,
                                      "--outputs", room / "out.npz"], capture_output=True, text=True)
                apart = distance(wanted, np.load(room / "out.npz")["y"]) if run.returncode == 0 else np.inf
                if not apart <= TOLERANCE:
                    print(f"{name}, {mesh}: {f'off by {apart:.1e}' if run.returncode == 0 else run.stderr.strip()}")
                    failed += 1
    print(f"{total - failed} of {total} runs of quantized experts agree")
    return failed > 0


if __name__ == "__main__":
    sys.exit(write(sys.argv[2]) if sys.argv[1] == "--write" else main(sys.argv[1]))
