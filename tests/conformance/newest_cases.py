#!/usr/bin/env python3
"""Writes the node tests of the installed onnx package, in the newest forms of ONNX's operators, as folders that
node_test_sweep reads: FOLDER/test_NAME/model.onnx, test_data_set_0/{input,output}_N.pb and tolerance.json.

    newest_cases.py FOLDER

Tests of sequences, optionals and maps are left out: their values are not tensors.
"""
import json
import pathlib
import sys
import warnings

import onnx
from onnx.backend.test.case.node import collect_testcases


def is_of_tensors(case):
    ports = [*case.model.graph.input, *case.model.graph.output]
    return bool(case.data_sets) and all(port.type.WhichOneof("value") == "tensor_type" for port in ports)


def as_proto(value, name):
    return value if isinstance(value, onnx.TensorProto) else onnx.numpy_helper.from_array(value, name)


def write(case, folder):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(case.model, folder / "model.onnx")
    graph = case.model.graph
    for kind, ports, values in zip(("input", "output"), (graph.input, graph.output), case.data_sets[0]):
        for number, (port, value) in enumerate(zip(ports, values)):
            (data / f"{kind}_{number}.pb").write_bytes(as_proto(value, port.name).SerializeToString())
    (folder / "tolerance.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))


def main(folder):
    warnings.simplefilter("ignore")  # some tests divide by zero
    cases = [case for case in collect_testcases(None) if is_of_tensors(case)]
    for case in cases:
        write(case, pathlib.Path(folder) / case.name)
    print(f"{len(cases)} node tests of onnx {onnx.__version__}, opset {onnx.defs.onnx_opset_version()}")


main(sys.argv[1])
