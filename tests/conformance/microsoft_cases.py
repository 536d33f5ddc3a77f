#!/usr/bin/env python3
"""Compares Tessera with ONNX Runtime on operators that the latter's optimizers and model builders write (com.microsoft),
alone and on two ranks.

    microsoft_cases.py TESSERA

Exit code 1 if an answer is further than 2e-5 of the largest value from ONNX Runtime's.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

TOLERANCE = 2e-5
random = np.random.default_rng(7)


def reals(*shape):
    return random.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return random.uniform(0.5, 1.5, shape).astype(np.float32)


def ids(low, high, *shape, dtype=np.int64):
    return random.integers(low, high, shape).astype(dtype)


def caches(places, width):
    angles = np.outer(np.arange(places), 1 / 100 ** (np.arange(width) / width)).astype(np.float32)
    return np.cos(angles), np.sin(angles)


def cases():
    """Name, operator, operands (None: left out), attributes, number of results."""
    hidden, heads = 16, 4
    x = reals(2, 5, hidden)
    yield "skip norm", "SkipLayerNormalization", [x, reals(2, 5, hidden), positive(hidden), reals(hidden)], {"epsilon": 1e-5}, 1
    yield ("skip norm with bias and sum", "SkipLayerNormalization",
           [x, reals(2, 5, hidden), positive(hidden), reals(hidden), reals(hidden)], {"epsilon": 1e-5}, (0, 3))
    yield ("skip RMS norm", "SkipSimplifiedLayerNormalization", [x, reals(2, 5, hidden), positive(hidden)],
           {"epsilon": 1e-5}, (0, 3))
    yield "RMS norm", ".SimplifiedLayerNormalization", [x, positive(hidden)], {"axis": -1, "epsilon": 1e-5}, 1
    yield ("embedding norm", "EmbedLayerNormalization",
           [ids(0, 9, 2, 5, dtype=np.int32), ids(0, 2, 2, 5, dtype=np.int32), reals(9, hidden), reals(8, hidden),
            reals(2, hidden), positive(hidden), reals(hidden), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)],
           {"epsilon": 1e-5}, 2)
    yield "fast gelu", "FastGelu", [x, reals(hidden)], {}, 1
    yield "bias gelu", "BiasGelu", [x, reals(hidden)], {}, 1
    yield "gelu", "Gelu", [x], {}, 1
    yield "quick gelu", "QuickGelu", [x], {"alpha": 1.5}, 1
    cosines, sines = caches(12, 2)
    yield "rotary, places", "RotaryEmbedding", [x, ids(0, 12, 2, 5), cosines, sines], {"num_heads": heads}, 1
    yield ("rotary in heads, from a place", "RotaryEmbedding", [reals(2, heads, 5, 4), np.array([3]), cosines, sines],
           {"interleaved": 1}, 1)
    yield "fused product", "FusedMatMul", [reals(2, 6, 4), reals(2, 5, 6)], {"transA": 1, "transB": 1, "alpha": 0.5}, 1
    image, filters = reals(2, 3, 6, 6), reals(4, 3, 3, 3)
    for activation, parameters in {"Relu": [], "Sigmoid": [], "Tanh": [], "LeakyRelu": [0.2], "Clip": [-0.5, 0.7],
                                   "HardSigmoid": [0.3, 0.4]}.items():
        yield (f"convolution with {activation}", "FusedConv", [image, filters, reals(4)],
               {"activation": activation, "pads": [1, 1, 1, 1], "strides": [2, 2],
                **({"activation_params": parameters} if parameters else {})}, 1)
    yield ("convolution with an addend", "FusedConv", [image, filters, None, reals(2, 4, 4, 4)], {"activation": "Relu"}, 1)
    for activation, parameters in {"Relu": {}, "Sigmoid": {}, "Tanh": {}, "Softplus": {}, "Softsign": {},
                                   "LeakyRelu": {"alpha": 0.2}, "Elu": {"alpha": 0.7}, "ThresholdedRelu": {"alpha": 0.3},
                                   "HardSigmoid": {"alpha": 0.3, "beta": 0.4}}.items():
        named = {f"activation_{name}": value for name, value in parameters.items()}
        yield (f"product with {activation}", "FusedGemm", [reals(5, 6), reals(4, 6), reals(4)],
               {"activation": activation, "transB": 1, "alpha": 0.5, **named}, 1)
    # Without AVX-512 VNNI, ONNX Runtime adds pairs of products in 16 bits, where larger weights saturate.
    codes, signed = ids(0, 256, 2, 5, 6, dtype=np.uint8), ids(-64, 65, 6, 4, dtype=np.int8)
    yield ("integer product to float", "MatMulIntegerToFloat",
           [codes, signed, np.array(0.1, np.float32), positive(4), np.array(120, np.uint8), ids(-5, 6, 4, dtype=np.int8), reals(4)], {}, 1)
    yield ("integer product to float by numbers", "MatMulIntegerToFloat",
           [codes, signed, np.array([0.1], np.float32), np.array([0.2], np.float32)], {}, 1)
    yield ("product with quantization", "DynamicQuantizeMatMul",
           [reals(2, 5, 6), signed, positive(4), ids(-5, 6, 4, dtype=np.int8), reals(4)], {}, 1)
    yield "product with quantization by a number", "DynamicQuantizeMatMul", [reals(5, 6), signed, np.array(0.2, np.float32)], {}, 1
    number = lambda value, kind=np.float32: np.array(value, kind)
    for past in (None, reals(2, 2, heads, 3, 4)):
        operands = [ids(0, 256, 2, 5, hidden, dtype=np.uint8), ids(-64, 65, hidden, 3 * hidden, dtype=np.int8), reals(3 * hidden),
                    number(0.01), positive(3 * hidden) / 50, None if past is not None else np.array([5, 3], np.int32),
                    number(120, np.uint8), np.zeros(3 * hidden, np.int8), past]
        yield (f"attention of codes{'' if past is None else ' with a past'}", "QAttention", operands,
               {"num_heads": heads, "unidirectional": int(past is not None)}, 1 if past is None else 2)
    tables = [ids(0, 256, rows, hidden, dtype=np.uint8) for rows in (9, 8, 2)]
    rows = [ids(0, 256, hidden, dtype=np.uint8) for _ in range(2)]
    scales = [number(value) for value in (0.02, 0.01, 0.03, 0.005, 0.02)]
    zeros = [number(value, np.uint8) for value in (128, 120, 100, 3, 130)]
    for mask in (None, np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)):
        yield ("embedding norm of codes", "QEmbedLayerNormalization",
               [ids(0, 9, 2, 5, dtype=np.int32), ids(0, 2, 2, 5, dtype=np.int32), *tables, *rows, mask, *scales, *zeros],
               {"epsilon": 1e-5}, 2)
    yield ("embedding norm of codes without segments", "QEmbedLayerNormalization",
           [ids(0, 9, 2, 5, dtype=np.int32), None, *tables[:2], None, *rows, None, *scales[:2], None, *scales[3:], *zeros[:2],
            None, *zeros[3:]], {"epsilon": 1e-5}, 2)
    for direction, count in {"forward": 1, "reverse": 1, "bidirectional": 2}.items():
        for by_columns in (False, True):
            width, inner = 6, 5
            scale = lambda: positive(count, 4 * inner) / 60 if by_columns else positive(count) / 60
            zero = lambda: np.zeros((count, 4 * inner) if by_columns else (count,), np.int8)
            operands = [reals(7, 1, width), ids(-64, 65, count, width, 4 * inner, dtype=np.int8),
                        ids(-64, 65, count, inner, 4 * inner, dtype=np.int8), reals(count, 8 * inner), None,
                        reals(count, 1, inner), reals(count, 1, inner), None, scale(), zero(), scale(), zero()]
            yield (f"LSTM of codes, {direction}{', by columns' if by_columns else ''}", "DynamicQuantizeLSTM", operands,
                   {"hidden_size": inner, "direction": direction}, 3)
    for direction, count in {"forward": 1, "reverse": 1, "bidirectional": 2}.items():
        for lengths in ([7], [4], [1], [3, 7, 5], [2, 1, 4]):
            n = len(lengths)
            yield (f"LSTM of codes, {direction}, sequences of {lengths} of 7, with peepholes", "DynamicQuantizeLSTM",
                   [reals(7, n, 6), ids(-64, 65, count, 6, 20, dtype=np.int8), ids(-64, 65, count, 5, 20, dtype=np.int8),
                    reals(count, 40), np.array(lengths, np.int32), reals(count, n, 5), reals(count, n, 5), reals(count, 15),
                    positive(count) / 60, np.zeros(count, np.int8), positive(count) / 60, np.zeros(count, np.int8)],
                   {"hidden_size": 5, "direction": direction}, 3)
    yield ("LSTM of codes alone, clipped", "DynamicQuantizeLSTM",
           [reals(4, 1, 6), ids(0, 128, 1, 6, 20, dtype=np.uint8), ids(0, 128, 1, 5, 20, dtype=np.uint8), None, None, None, None,
            None, positive(1) / 60, np.array([60], np.uint8), positive(1) / 60, np.array([70], np.uint8)],
           {"hidden_size": 5, "clip": 0.7}, (0, 2))
    for bits in (2, 4, 8):
        packed = ids(0, 256, 9, 48 * bits // 8, dtype=np.uint8)
        for blocks_zero in (None, ids(0, 256, 9, -(-3 * bits // 8), dtype=np.uint8)):
            for shape in ((2, 5), (3,), ()):
                yield (f"rows of a table of {bits} bits", "GatherBlockQuantized",
                       [packed, ids(-9, 9, *shape), positive(9, 3), blocks_zero],
                       {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}, 1)
    for kind in (0, 1):
        for k, n, block in ((32, 6, 16), (33, 3, 16), (16, 5, 64)):
            yield (f"product by numbers of 4 bits, {'FP4' if kind == 0 else 'NF4'}", "MatMulBnb4",
                   [reals(2, 3, k), ids(0, 256, (n * k + 1) // 2, dtype=np.uint8), positive(-(-n * k // block))],
                   {"K": k, "N": n, "block_size": block, "quant_type": kind}, 1)
    a, b = (ids(0, 256, 2, 5, 6, dtype=np.uint8) for _ in range(2))
    yield ("a choice of codes", "QLinearWhere",
           [ids(0, 2, 2, 5, 1) > 0, a, number(0.1), number(120, np.uint8), b, number(0.2), number(100, np.uint8), number(0.25),
            number(110, np.uint8)], {}, 1)
    yield "multi-head attention", "MultiHeadAttention", [x, reals(2, 7, hidden), reals(2, 7, hidden)], {"num_heads": heads}, 1
    yield ("multi-head attention with bias, mask and scores", "MultiHeadAttention",
           [x, reals(2, 7, hidden), reals(2, 7, hidden), reals(3 * hidden),
            np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32), reals(1, heads, 5, 7)], {"num_heads": heads, "scale": 0.3}, 1)
    yield ("multi-head attention with a past", "MultiHeadAttention",
           [x, reals(2, 5, hidden), reals(2, 5, hidden), None, None, None, reals(2, heads, 3, 4), reals(2, heads, 3, 4)],
           {"num_heads": heads, "unidirectional": 1}, 3)
    yield ("attention", "Attention", [x, reals(hidden, 3 * hidden), reals(3 * hidden), np.array([5, 3], np.int32)],
           {"num_heads": heads}, 1)
    yield ("attention with a past", "Attention",
           [x, reals(hidden, 3 * hidden), reals(3 * hidden), None, reals(2, 2, heads, 3, 4)],
           {"num_heads": heads, "unidirectional": 1}, 2)

    def mixture(activation, *columns, tokens=(2, 5), experts=4, **attributes):
        """Operands from what each of fc1, fc2 and fc3 has: the columns, and whether there is a bias."""
        operands = [reals(*tokens, hidden), reals(int(np.prod(tokens)), experts)]
        for rows, width, bias in columns:
            operands += [reals(experts, width, rows) * 0.3, reals(experts, width) if bias else None]
        return "MoE", operands, {"activation_type": activation, "k": 2, **attributes}, 1

    plain, back = (hidden, 12, False), (12, hidden, False)
    yield "experts", *mixture("relu", plain, back)
    yield "experts of tokens in a row", *mixture("silu", plain, back, tokens=(7,), normalize_routing_weights=1)
    yield "experts with biases", *mixture("gelu", (hidden, 12, True), (12, hidden, True), k=1)
    yield "experts without an activation", *mixture("identity", plain, back, normalize_routing_weights=1, k=3)
    yield ("experts of gated units", *mixture("swiglu", (hidden, 24, True), (12, hidden, True), swiglu_fusion=1,
                                              activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.5))
    yield "experts of gated units by default", *mixture("swiglu", (hidden, 24, False), back, swiglu_fusion=1)

    def grouped(batch, fresh, past, lengths, sinks=False, **attributes):
        width, kv = 16, 2
        operands = [reals(batch, fresh, heads * width), reals(batch, fresh, kv * width), reals(batch, fresh, kv * width),
                    reals(batch, kv, past, width), reals(batch, kv, past, width), np.array(lengths, np.int32),
                    np.array(max(lengths) + 1, np.int32)]
        if attributes.get("do_rotary"):
            operands += list(caches(32, width // 2))
        if sinks:
            operands += [None] * (11 - len(operands)) + [reals(heads)]
        return operands, {"num_heads": heads, "kv_num_heads": kv, **attributes}

    for name, arguments in {
        "a prompt": dict(batch=2, fresh=5, past=0, lengths=[4, 4]),
        "a decode step": dict(batch=2, fresh=1, past=6, lengths=[6, 6]),
        "a decode step, rotated": dict(batch=1, fresh=1, past=6, lengths=[6], do_rotary=1),
        "a rotated prompt in a window": dict(batch=1, fresh=7, past=0, lengths=[6], do_rotary=1, local_window_size=3),
        "a capped decode step": dict(batch=1, fresh=1, past=4, lengths=[4], softcap=2.0, scale=0.4),
        "a decode step with sinks": dict(batch=2, fresh=1, past=6, lengths=[6, 6], sinks=True),
        "a rotated prompt with sinks, in a window": dict(batch=1, fresh=7, past=0, lengths=[6], sinks=True, do_rotary=1,
                                                         local_window_size=3),
        "a prompt with smooth softmax": dict(batch=2, fresh=5, past=0, lengths=[4, 4], smooth_softmax=1),
    }.items():
        operands, attributes = grouped(**arguments)
        yield "grouped queries: " + name, "GroupQueryAttention", operands, attributes, 3


def model_of(operator, operands, attributes, results):
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(operands)]
    kept = results if isinstance(results, tuple) else tuple(range(results))
    outputs = [f"y{i}" if i in kept else "" for i in range(max(kept) + 1)]
    domain = "" if operator.startswith(".") else "com.microsoft"
    node = helper.make_node(operator.lstrip("."), names, outputs, domain=domain, **attributes)
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for name, value in zip(names, operands) if name]
    ports = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph([node], "case", inputs, ports)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]), names


def main(tessera):
    failed = 0
    with tempfile.TemporaryDirectory() as room:
        folder = pathlib.Path(room)
        total = 0
        for name, operator, operands, attributes, results in cases():
            total += 1
            model, names = model_of(operator, operands, attributes, results)
            feeds = {key: value for key, value in zip(names, operands) if key}
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1  # several quantize the sequences of a DynamicQuantizeLSTM apart
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            wanted = dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds)))
            for port, (key, value) in zip(model.graph.output, wanted.items()):
                port.CopyFrom(helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
            onnx.save(model, folder / "model.onnx")
            np.savez(folder / "in.npz", **feeds)
            for split in ([], ["--mesh", "tp=2", "--annotate", "x0=[-,tp?]" if operands[0].ndim == 2 else "x0=[tp?,...]"]):
                run = subprocess.run([tessera, "run", folder / "model.onnx", "--inputs", folder / "in.npz", "--quiet",
                                      "--outputs", folder / "out.npz", *split], capture_output=True, text=True)
                if run.returncode:
                    print(f"{name} {' '.join(split)}: {run.stderr.strip()}")
                    failed += 1
                    continue
                got = np.load(folder / "out.npz")
                for key, value in wanted.items():
                    apart = np.abs(got[key].astype(np.float64) - value).max(initial=0)
                    if got[key].shape != value.shape or not apart <= TOLERANCE * max(1, np.abs(value).max(initial=0)):
                        print(f"{name} {' '.join(split)}: {key} {got[key].shape} is off by {apart}, {value.shape} wanted")
                        failed += 1
    print(f"{total} cases of ONNX Runtime {onnxruntime.__version__}'s operators, alone and on two ranks: {failed} answers differ")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))
