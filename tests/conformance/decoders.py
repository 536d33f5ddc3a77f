#!/usr/bin/env python3
"""Continues texts with decoders as ONNX Runtime's builder of models and Optimum write them, and compares the tokens with
those that ONNX Runtime chooses, caches held as states, on one and two ranks.

    python3 tests/conformance/decoders.py build/tessera

needs numpy, onnx and onnxruntime.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, KV_HEADS, WIDTH, LAYERS, PLACES = 101, 4, 2, 16, 2, 64
HIDDEN = HEADS * WIDTH
PROMPTS = [[5, 7, 42, 3], [9, 1], [11, 2, 3, 4, 5, 6, 7]]
NEW = 12


class Writer:
    """A decoder of grouped queries; the number of tokens comes from the mask."""

    def __init__(self, packed=False, sinks=False, **attributes):
        self.random = np.random.default_rng(0)
        self.nodes, self.constants = [], {}
        self.packed, self.sinks, self.attributes = packed, sinks, {"num_heads": HEADS, "kv_num_heads": KV_HEADS, **attributes}

    def add(self, op_type, operands, results, **attributes):
        domain = "com.microsoft" if op_type == "GroupQueryAttention" else ""
        self.nodes.append(helper.make_node(op_type, operands, results, domain=domain, name="/" + results[0], **attributes))
        return results[0]

    def constant(self, name, array):
        self.constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def product(self, x, name, rows, columns):
        weight = (self.random.standard_normal((rows, columns)) * 0.3).astype(np.float32)
        return self.add("MatMul", [x, self.constant("w_" + name, weight)], [name])

    def layer(self, x, number):
        if self.packed:
            operands = [self.product(x, f"qkv_{number}", HIDDEN, (HEADS + 2 * KV_HEADS) * WIDTH), "", ""]
        else:
            operands = [self.product(x, f"{name}_{number}", HIDDEN, heads * WIDTH)
                        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))]
        operands += [f"past_key_values.{number}.{part}" for part in ("key", "value")] + ["lengths", "total_length"]
        operands += ["cosines", "sines"] if self.attributes.get("do_rotary") else []
        if self.sinks:
            sinks = self.random.standard_normal(HEADS).astype(np.float32)
            operands += [""] * (11 - len(operands)) + [self.constant(f"sinks_{number}", sinks)]
        results = [f"y_{number}", f"present.{number}.key", f"present.{number}.value"]
        self.add("GroupQueryAttention", operands, results, **self.attributes)
        return self.add("Add", [x, self.product(results[0], f"o_{number}", HIDDEN, HIDDEN)], [f"x_{number}"])

    def model(self):
        one = self.constant("one", np.array([1]))
        counts = self.add("ReduceSum", ["attention_mask", one], ["counts"])
        last = self.add("Sub", [counts, one], ["last"])
        self.add("Cast", [last], ["lengths"], to=TensorProto.INT32)
        extents = self.add("Shape", ["attention_mask"], ["extents"])
        total = self.add("Gather", [extents, self.constant("second", np.array(1))], ["total"])
        self.add("Cast", [total], ["total_length"], to=TensorProto.INT32)
        if self.attributes.get("do_rotary"):
            angles = np.arange(PLACES)[:, None] * 10000.0 ** (-np.arange(WIDTH // 2) / (WIDTH // 2))
            self.constant("cosines", np.cos(angles).astype(np.float32))
            self.constant("sines", np.sin(angles).astype(np.float32))
        table = self.constant("table", self.random.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32))
        x = self.add("Gather", [table, "input_ids"], ["x"])
        for number in range(LAYERS):
            x = self.layer(x, number)
        self.product(x, "logits", HIDDEN, VOCABULARY)
        text, float32 = ["batch_size", "sequence_length"], TensorProto.FLOAT
        port = helper.make_tensor_value_info
        inputs = [port("input_ids", TensorProto.INT64, text),
                  port("attention_mask", TensorProto.INT64, ["batch_size", "total_sequence_length"])]
        outputs = [port("logits", float32, [*text, VOCABULARY])]
        for number in range(LAYERS):
            for part in ("key", "value"):
                shape = ["batch_size", KV_HEADS, "past_sequence_length", WIDTH]
                inputs.append(port(f"past_key_values.{number}.{part}", float32, shape))
                shape = ["batch_size", KV_HEADS, "total_sequence_length", WIDTH]
                outputs.append(port(f"present.{number}.{part}", float32, shape))
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, list(self.constants.values()))
        return whole(graph)


def whole(graph):
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def branch(graph, name, continues):
    """The graph's nodes, with names of their own; without caches as operands unless it continues them."""
    made = {result for node in graph.node for result in node.output}
    result = onnx.GraphProto(name=name)
    for node in graph.node:
        copy = result.node.add()
        copy.CopyFrom(node)
        copy.name = name + node.name
        copy.output[:] = [f"{name}/{value}" for value in node.output]
        copy.input[:] = [f"{name}/{value}" if value in made else "" if not continues and value.startswith("past") else value
                         for value in node.input]
    for output in graph.output:
        copy = result.output.add()
        copy.CopyFrom(output)
        copy.name = f"{name}/{output.name}"
    return result


def merged(model):
    """A branch for the first run, and one for those that continue caches."""
    graph = model.graph
    results = [output.name for output in graph.output]
    choice = helper.make_node("If", ["use_cache_branch"], results, then_branch=branch(graph, "continued", True),
                              else_branch=branch(graph, "begun", False))
    inputs = [*graph.input, helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])]
    return whole(helper.make_graph([choice], "merged", inputs, graph.output, graph.initializer))


def cases():
    rotated = {"do_rotary": 1}
    yield "grouped queries", Writer().model(), None
    yield "rotated", Writer(**rotated).model(), None
    yield "packed", Writer(packed=True, **rotated).model(), None
    yield "capped scores", Writer(softcap=2.0, scale=0.4, **rotated).model(), None
    yield "a window", Writer(local_window_size=4, **rotated).model(), None
    yield "sinks", Writer(sinks=True, local_window_size=4, **rotated).model(), None
    yield "smooth softmax", Writer(smooth_softmax=1).model(), None
    yield "two branches", merged(Writer(**rotated).model()), Writer(**rotated).model()


def peer_text(session, prompt):
    names = [output.name for output in session.get_outputs()]
    caches = {port.name: np.zeros((1, KV_HEADS, 0, WIDTH), np.float32)
              for port in session.get_inputs() if port.name.startswith("past")}
    ids, seen, chosen = prompt, 0, []
    for _ in range(NEW):
        seen += len(ids)
        inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, seen), np.int64), **caches}
        results = dict(zip(names, session.run(None, inputs)))
        chosen.append(int(results["logits"][0, -1].argmax()))
        ids = chosen[-1:]
        caches = {name: results[name.replace("past_key_values", "present")] for name in caches}
    return chosen


def our_texts(tessera, path, options):
    prompts = [word for prompt in PROMPTS for word in ("--ids", ",".join(map(str, prompt)))]
    command = [tessera, "generate", path, *prompts, "--max-new", str(NEW), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return "", done.stderr.strip()
    report = json.loads(done.stdout)
    return report["cache"] + " " + report["cache_reason"], [text["ids"] for text in report["texts"]]


def main(tessera):
    failed = total = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model, alike in cases():
            path = os.path.join(folder, name.replace(" ", "-") + ".onnx")
            onnx.save(model, path)
            session = onnxruntime.InferenceSession((alike or model).SerializeToString(), providers=["CPUExecutionProvider"])
            wanted = [peer_text(session, prompt) for prompt in PROMPTS]
            for options in ([], ["--batch", "1"], ["--mesh", "tp=2"], ["--mesh", "dp=3"], ["--cache", "handed"]):
                total += 1
                form, made = our_texts(tessera, path, options)
                if made != wanted or form.split()[0] != ("handed" if "handed" in options else "held"):
                    failed += 1
                    print(f"{name} {' '.join(options)}: {form} {made}, not {wanted}")
    print(f"{total} texts of decoders beside ONNX Runtime {onnxruntime.__version__}'s: {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
