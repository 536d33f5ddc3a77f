#!/usr/bin/env python3
"""Holds every ONNX file of the folders given to onnx.checker's full check (types and shapes inferred, strictly), then
once more with all functions inlined by onnx.inliner.

    check_files.py FOLDER...

Exit code 1 if a file is refused, which is named. Needs Python with onnx.
"""
import pathlib
import sys

import onnx
import onnx.checker
import onnx.inliner


def refusal(path):
    try:
        onnx.checker.check_model(str(path), full_check=True)
        model = onnx.load(path, load_external_data=False)
        if model.functions:
            inlined = onnx.inliner.inline_local_functions(model)
            assert not inlined.functions
            beside = path.with_suffix(".inlined.onnx")
            try:
                onnx.save(inlined, beside)
                onnx.checker.check_model(str(beside), full_check=True)
            finally:
                beside.unlink(missing_ok=True)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main():
    files = sorted(path for folder in sys.argv[1:] for path in pathlib.Path(folder).rglob("*.onnx"))
    if not files:
        raise SystemExit("no .onnx files there; name folders that `tessera shard -o` wrote")
    refused = 0
    for path in files:
        if reason := refusal(path):
            refused += 1
            print(f"{path}: {reason}")
    print(f"{len(files) - refused} of {len(files)} files pass the full check, with functions and inlined")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
