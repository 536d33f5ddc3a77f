#!/usr/bin/env python3
"""Saves the models of a written program anew by tools that others wrote, and holds tessera to taking the program over:
`check --accept` is to find it good, and its answers are to stay the same bits.

    save_again.py TESSERA FOLDER --inputs IN.npz --expect OUT.npz

Exit code 1 if a tool's program is refused, or its answers differ; they are named. Needs Python with onnx, onnxscript and
numpy.
"""
import argparse
import contextlib
import logging
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy
import onnx
import onnx.inliner
import onnx.shape_inference
import onnx_ir
import onnx_ir.passes.common
import onnxscript.optimizer


def with_pass(name):
    def run(model):
        held = onnx_ir.serde.deserialize_model(model)
        return onnx_ir.serde.serialize_model(getattr(onnx_ir.passes.common, name)()(held).model)

    return run


def without_notes(model):
    del model.graph.value_info[:]
    return model


TOOLS = {
    "onnx.save": lambda model: model,
    "onnx.save with weights": lambda model: model,  # see save()
    "onnx.shape_inference": onnx.shape_inference.infer_shapes,
    "onnx.inliner": onnx.inliner.inline_local_functions,
    "onnxscript.optimizer": onnxscript.optimizer.optimize,
    "onnxscript.optimizer, nothing inlined": lambda model: onnxscript.optimizer.optimize(model, inline=False),
    "common subexpressions": with_pass("CommonSubexpressionEliminationPass"),
    "equal initializers": with_pass("DeduplicateInitializersPass"),
    "nodes sorted": with_pass("TopologicalSortPass"),
    "no value_info": without_notes,
}


def save(path, name):
    model = onnx.load(path, load_external_data=name == "onnx.save with weights")
    with contextlib.chdir(path.parent):  # where tools look for external data
        model = TOOLS[name](model)
    onnx.save(model, path)


def flaw_of(tessera, folder, inputs, expected):
    """Why the program is not the same any more; None if it is."""
    checked = subprocess.run([tessera, "check", folder, "--accept"], capture_output=True, text=True)
    if checked.returncode != 0:
        return (checked.stderr or checked.stdout).strip()
    outputs = folder / "outputs.npz"
    ran = subprocess.run([tessera, "run", folder, "--inputs", inputs, "--outputs", outputs, "--quiet"],
                         capture_output=True, text=True)
    if ran.returncode != 0:
        return ran.stderr.strip()
    found = numpy.load(outputs)
    for name, array in numpy.load(expected).items():
        if not numpy.array_equal(found[name], array):
            return f"'{name}' is another"
    return None


def main():
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--expect", required=True)
    asked = parser.parse_args()
    flaws = 0
    one_for_all = (asked.folder / "model.onnx").exists()
    tools = [name for name in TOOLS if one_for_all or "with weights" not in name]
    for name in tools:
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work) / "out"
            shutil.copytree(asked.folder, folder)
            for path in folder.glob("*.onnx"):
                save(path, name)
            if flaw := flaw_of(asked.tessera, folder, asked.inputs, asked.expect):
                flaws += 1
                print(f"\n  {name}: {flaw}")
    print(f"{len(tools) - flaws} of {len(tools)} tools leave the program what it was")
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
