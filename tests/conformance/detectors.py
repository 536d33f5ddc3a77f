#!/usr/bin/env python3
"""Runs torchvision's detectors, as PyTorch exports them, on meshes, beside ONNX Runtime's answers.

    venv/bin/pip install torch torchvision onnx onnxruntime numpy
    venv/bin/python tests/conformance/detectors.py [NAME...] [--tessera build/tessera] [--keep FOLDER]

How many boxes there are depends on the image, so that these models run in parts; Mask R-CNN and Keypoint R-CNN resize
each mask to its box in a Loop that appends to what it carries. Prints the largest difference from ONNX Runtime, relative
to the largest element, and the time of the fastest of three runs beside ONNX Runtime's. Boxes are compared with the
nearest, as those of nearly equal scores may come in another order. ONNX Runtime differs from itself, too, without its
optimizations and where each pixel is the next number: a mask follows its box, which follows all that stands before. A
model agrees if it is no further from ONNX Runtime than the tolerance, or than ONNX Runtime is from itself. The exit code
is 1 if a model differs. Weights are random, so that the boxes say nothing. Needs some 5 minutes.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
import onnxruntime
import torch
from torchvision.models import detection

MESHES = ["tp=1", "tp=2", "dp=2,tp=2"]
TOLERANCE = 2e-4  # of float32, over a whole model
HEIGHT, WIDTH = 96, 128
SMALL = dict(weights=None, weights_backbone=None, min_size=HEIGHT, max_size=WIDTH)
MODELS = {
    "Faster R-CNN": lambda: detection.fasterrcnn_resnet50_fpn(**SMALL, num_classes=5),
    "Mask R-CNN": lambda: detection.maskrcnn_resnet50_fpn(**SMALL, num_classes=5),
    "Keypoint R-CNN": lambda: detection.keypointrcnn_resnet50_fpn(**SMALL, num_classes=2),
    "RetinaNet": lambda: detection.retinanet_resnet50_fpn(**SMALL, num_classes=5, score_thresh=0.001),
    "FCOS": lambda: detection.fcos_resnet50_fpn(**SMALL, num_classes=5, score_thresh=0.001),
    "SSD": lambda: detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=5),
    "SSDlite": lambda: detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5),
}


def difference(actual, expected):
    """The largest of all outputs, relative to the largest element of each. Rows, one for each box, may be in any order;
    scores are compared place by place, too."""
    if [a.shape for a in actual] != [e.shape for e in expected]:
        return float("inf")
    if expected[0].size == 0:
        return 0.0
    apart = 0
    for a, e in zip(actual, expected):
        a, e = (x.reshape(len(x), -1).astype(np.float64) for x in (a, e))
        largest = max(np.abs(e).max(), 1e-30)
        apart = np.maximum(apart, np.stack([np.abs(a - row).max(axis=1) for row in e]) / largest)
    if len(set(apart.argmin(axis=1))) < len(apart):
        return float("inf")
    scores = [np.abs(a - e).max() / max(np.abs(e).max(), 1e-30)
              for a, e in zip(actual, expected) if e.ndim == 1 and e.dtype == np.float32]
    return max(apart.min(axis=1).max(), *scores)


def fastest(run, times=3):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        result = run()
        taken.append(time.perf_counter() - start)
    return result, min(taken)


def check(name, tessera, folder):
    torch.manual_seed(1)
    path, inputs, outputs = (folder / f for f in (f"{name.replace(' ', '-')}.onnx", "inputs.npz", "outputs.npz"))
    image = torch.rand(3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
    torch.onnx.export(MODELS[name]().eval(), ([image],), str(path), opset_version=17, dynamo=False,
                      input_names=["image"])
    np.savez(inputs, image=image.numpy())
    session = onnxruntime.InferenceSession(str(path))
    expected, theirs = fastest(lambda: session.run(None, {"image": image.numpy()}))
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    others = [onnxruntime.InferenceSession(str(path), plain).run(None, {"image": image.numpy()})]
    for way in (-np.inf, np.inf):
        others.append(session.run(None, {"image": np.nextafter(image.numpy(), np.float32(way))}))
    own = max(difference(other, expected) for other in others)
    if not np.isfinite(own):
        return False, "ONNX Runtime's boxes are others without its optimizations, so that nothing can be compared"
    names = [output.name for output in session.get_outputs()]
    parts, good = [], True
    for mesh in MESHES:
        ran = subprocess.run([tessera, "run", str(path), "--inputs", str(inputs), "--mesh", mesh, "--preset", "megatron",
                              "--outputs", str(outputs), "--repeat", "3"], capture_output=True, text=True)
        if ran.returncode != 0:
            return False, f"{mesh}: {ran.stderr.strip().splitlines()[-1]}"
        with np.load(outputs) as ours:
            largest = difference([ours[n] for n in names], expected)
        took = re.search(r"ran in (\d+) parts.* in ([\d.]+ \w+)", ran.stdout + ran.stderr)
        parts.append(f"{mesh} {largest:.1e}" + (f" ({took[1]} parts, {took[2]})" if took else ""))
        good &= largest <= max(TOLERANCE, own)
    boxes = expected[0].shape[0]
    return good, f"{boxes} boxes: {', '.join(parts)}; ONNX Runtime {own:.1e} from itself, {theirs * 1e3:.0f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the models")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    onnxruntime.set_default_logger_severity(3)
    failed = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.names or MODELS:
            good, line = check(name, options.tessera, folder)
            print(f"{name}: {'' if good else 'DIFFERS: '}{line}", flush=True)
            if not good:
                failed.append(name)
    print(f"{len(options.names or MODELS) - len(failed)} of {len(options.names or MODELS)} detectors agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
