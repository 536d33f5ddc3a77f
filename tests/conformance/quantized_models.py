#!/usr/bin/env python3
"""Quantizes models with ONNX Runtime's own tools, and compares Tessera's answers with ONNX Runtime's, on one rank and on
two and three.

    quantized_models.py TESSERA FOLDER...

Each FOLDER holds model.onnx and inputs_0.npz. Ways to quantize: dynamic (int8 and uint8 weights, one scale or one per
column), static with QuantizeLinear and DequantizeLinear around operators or with QLinear operators, and weights of 4 and 8 bits in blocks
(MatMulNBits, and DequantizeLinear of blocks). ONNX Runtime runs them as they are written, without its optimizer, which
changes where results are rounded to integers; but where its sums of products of uint8 by int8 saturate, its
optimizer makes them exact first.

Answers must agree to TOLERANCE of the largest value. But where a float is almost halfway between two integers, the last
bit of a sum decides which one it is quantized to, and that step goes on through the model; so they may be apart by SHARE
of what quantization itself has cost. Exit code 1 if an answer is further off, or if one rank and several differ by more.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

TOLERANCE, SHARE = 2e-5, 0.3
MESHES = [[], ["--mesh", "tp=2", "--preset", "megatron"], ["--mesh", "tp=3", "--preset", "megatron"]]
MESHES_OF_IMAGES = [[], ["--mesh", "dp=2", "--preset", "dp"], ["--mesh", "x=3", "--annotate", "x=[-, -, x, -]"]]


def two_layers(path):
    """Products of whole blocks, which both dimensions of a mesh can split."""
    random = np.random.default_rng(1)
    shapes = {"w1": (96, 192), "b1": (192,), "w2": (192, 64), "b2": (64,)}
    weights = [numpy_helper.from_array((random.standard_normal(shape) / 8).astype(np.float32), name) for name, shape in shapes.items()]
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["m1"]), helper.make_node("Add", ["m1", "b1"], ["a1"]),
             helper.make_node("Relu", ["a1"], ["r1"]), helper.make_node("MatMul", ["r1", "w2"], ["m2"]),
             helper.make_node("Add", ["m2", "b2"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 96])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 64])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "layers", *ports, weights), ir_version=10,
                                opset_imports=[helper.make_opsetid("", 21)]), path)
    return {"x": random.standard_normal((7, 96)).astype(np.float32)}


def images(path):
    """Convolutions of all kinds, a pooling, a residual and a classifier; every operator that the format QOperator has."""
    random = np.random.default_rng(2)
    shapes = {"w1": (12, 3, 3, 3), "b1": (12,), "w2": (12, 1, 3, 3), "w3": (12, 6, 1, 1), "w4": (8, 24, 2, 2), "b4": (8,),
              "w5": (8, 10), "b5": (10,)}
    weights = [numpy_helper.from_array((random.standard_normal(shape) / 3).astype(np.float32), name) for name, shape in shapes.items()]
    node = helper.make_node
    nodes = [node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["c1"], ["r1"]),
             node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2]), node("Conv", ["p1", "w2"], ["c2"], group=12, pads=[1, 1, 1, 1]),
             node("LeakyRelu", ["c2"], ["l2"], alpha=0.1), node("Conv", ["l2", "w3"], ["c3"], group=2),
             node("Sigmoid", ["c3"], ["s3"]), node("Mul", ["c3", "s3"], ["m3"]), node("Add", ["m3", "p1"], ["a3"]),
             node("AveragePool", ["a3"], ["v3"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Concat", ["v3", "m3"], ["k3"], axis=1),
             node("Conv", ["k3", "w4", "b4"], ["c4"]), node("GlobalAveragePool", ["c4"], ["g4"]), node("Flatten", ["g4"], ["f4"]),
             node("Gemm", ["f4", "w5", "b5"], ["d5"]), node("Softmax", ["d5"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 19, 17])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 10])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "images", *ports, weights), ir_version=10,
                                opset_imports=[helper.make_opsetid("", 21)]), path)
    return {"x": random.standard_normal((3, 3, 19, 17)).astype(np.float32)}


def recurrent(path):
    """Recurrent layers of both directions, over a text of any length."""
    random = np.random.default_rng(3)
    shapes = {"w1": (2, 64, 12), "r1": (2, 64, 16), "b1": (2, 128), "w2": (1, 48, 32), "r2": (1, 48, 12), "w3": (12, 10)}
    weights = [numpy_helper.from_array((random.standard_normal(shape) / 3).astype(np.float32), name) for name, shape in shapes.items()]
    weights.append(numpy_helper.from_array(np.array([0, 0, -1]), "joined"))
    node = helper.make_node
    nodes = [node("LSTM", ["x", "w1", "r1", "b1"], ["y1"], hidden_size=16, direction="bidirectional"),
             node("Transpose", ["y1"], ["t1"], perm=[0, 2, 1, 3]), node("Reshape", ["t1", "joined"], ["j1"]),
             node("LSTM", ["j1", "w2", "r2"], ["", "h2"], hidden_size=12, direction="reverse"),
             node("MatMul", ["h2", "w3"], ["y"])]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "b", 12])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, "b", 10])]
    onnx.save(helper.make_model(helper.make_graph(nodes, "recurrent", *ports, weights), ir_version=10,
                                opset_imports=[helper.make_opsetid("", 21)]), path)
    return {"x": random.standard_normal((9, 1, 12)).astype(np.float32)}


class Samples(quantization.CalibrationDataReader):
    def __init__(self, inputs):
        self.left = iter([inputs])

    def get_next(self):
        return next(self.left, None)


def blocks(path, target, bits, symmetric, form, operators=("MatMul",)):
    quantizer = MatMulNBitsQuantizer(str(path), bits=bits, block_size=32, is_symmetric=symmetric, quant_format=form,
                                     op_types_to_quantize=operators)
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


def ways(path, target, inputs):
    """Name, and what writes the quantized model to `target`."""
    of, form = quantization.QuantType, quantization.QuantFormat
    yield "dynamic", lambda: quantization.quantize_dynamic(path, target)
    yield ("dynamic, uint8 by columns",
           lambda: quantization.quantize_dynamic(path, target, weight_type=of.QUInt8, per_channel=True))
    yield "static", lambda: quantization.quantize_static(path, target, Samples(inputs), quant_format=form.QDQ)
    yield ("static, by columns",
           lambda: quantization.quantize_static(path, target, Samples(inputs), quant_format=form.QDQ, per_channel=True,
                                                activation_type=of.QUInt8))
    yield ("static, operators",
           lambda: quantization.quantize_static(path, target, Samples(inputs), quant_format=form.QOperator,
                                                activation_type=of.QUInt8))
    for bits in (4, 8):
        for symmetric in (True, False):
            yield (f"{bits}-bit blocks{'' if symmetric else ' with zero points'}",
                   lambda: blocks(path, target, bits, symmetric, form.QOperator))
    for symmetric in (True, False):
        yield (f"4-bit blocks dequantized{'' if symmetric else ' with zero points'}",
               lambda: blocks(path, target, 4, symmetric, form.QDQ))
        yield (f"4-bit blocks and tables{'' if symmetric else ' with zero points'}",
               lambda: blocks(path, target, 4, symmetric, form.QOperator, ("MatMul", "Gather")))


def saturates():
    """Whether ONNX Runtime's sums of products of uint8 by int8 do, as without AVX-512 VNNI."""
    ports = [helper.make_tensor_value_info("a", TensorProto.UINT8, [8, 64]), helper.make_tensor_value_info("b", TensorProto.INT8, [64, 64])]
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "product", ports,
                              [helper.make_tensor_value_info("y", TensorProto.INT32, [8, 64])])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    sums = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"a": np.full((8, 64), 255, np.uint8), "b": np.full((64, 64), 127, np.int8)})[0]
    return sums[0, 0] != 64 * 255 * 127


SATURATES = saturates()


def options(way=""):
    made = onnxruntime.SessionOptions()
    made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # The optimizer makes weights uint8, whose sums do not saturate. Those of LSTMs are int8 whatever is asked for.
    if SATURATES and (way.startswith("dynamic") or way == "static, operators"):
        made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        made.add_session_config_entry("session.x64quantprecision", "1")
    return made


def distance(wanted, got):
    apart = [np.abs(w.astype(np.float64) - g).max(initial=0) / max(1e-30, np.abs(w).max(initial=0)) for w, g in zip(wanted, got)]
    return max(apart)


def main(tessera, folders):
    failed = total = 0
    with tempfile.TemporaryDirectory() as room:
        room = pathlib.Path(room)
        subjects = [("two layers", room / "layers.onnx", two_layers(room / "layers.onnx")),
                    ("images", room / "images.onnx", images(room / "images.onnx")),
                    ("recurrent", room / "recurrent.onnx", recurrent(room / "recurrent.onnx"))]
        for folder in map(pathlib.Path, folders):
            subjects.append((folder.name, folder / "model.onnx", dict(np.load(folder / "inputs_0.npz"))))
        for subject, path, inputs in subjects:
            np.savez(room / "in.npz", **inputs)
            exact = onnxruntime.InferenceSession(path, options()).run(None, inputs)
            for way, quantize in ways(path, room / "model.onnx", inputs):
                quantize()
                session = onnxruntime.InferenceSession(room / "model.onnx", options(way), providers=["CPUExecutionProvider"])
                wanted, first = session.run(None, inputs), None
                allowed = TOLERANCE if "blocks" in way else max(TOLERANCE, SHARE * distance(exact, wanted))
                for mesh in MESHES_OF_IMAGES if subject == "images" else MESHES:
                    total += 1
                    said = f"{subject}, {way}, {' '.join(mesh[1:2]) or 'one rank'}"
                    run = subprocess.run([tessera, "run", room / "model.onnx", "--inputs", room / "in.npz", "--quiet",
                                          "--outputs", room / "out.npz", *mesh], capture_output=True, text=True)
                    if run.returncode:
                        print(f"{said}: {run.stderr.strip()}")
                        failed += 1
                        continue
                    arrays = np.load(room / "out.npz")
                    got = [arrays[port.name] for port in session.get_outputs()]
                    first = first or got
                    apart, between = distance(wanted, got), distance(first, got)
                    if not apart <= allowed or not between <= allowed:
                        print(f"{said}: off by {apart:.1e} from ONNX Runtime, {between:.1e} from one rank; {allowed:.1e} allowed")
                        failed += 1
    print(f"{total} runs of models quantized by ONNX Runtime {onnxruntime.__version__}: {failed} answers differ")
    return 1 if failed else 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
