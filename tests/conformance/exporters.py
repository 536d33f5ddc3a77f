#!/usr/bin/env python3
"""Runs models that other exporters wrote on meshes, beside ONNX Runtime's answers: PyTorch's older exporter, which traces
(`dynamo=False`), its newer one where the sizes of inputs are expressions, and TensorFlow's (tf2onnx).

    venv/bin/pip install onnx onnxruntime torch torchvision transformers
    venv/bin/python tests/conformance/exporters.py [NAME...] [--tessera build/tessera] [--keep FOLDER]

The same with tensorflow-cpu and tf2onnx in a virtual environment of its own; models of a framework that is not there are
left out. Prints a row for each model: whether `tessera verify --against onnxruntime` agrees on each mesh, and what the
exporter or Tessera refuses. The exit code is 1 if a model differs or is refused. Weights are random. Needs some 5
minutes.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np

MESHES = ["tp=1", "tp=2", "dp=2,tp=2"]


def torch_models():
    """Of each name: a function that gives a module, its arrays by name, and whether they have a free batch. Instead of
    that, `dynamic_shapes` for the newer exporter, and other arrays of such shapes to run with."""
    import torch
    import torchvision.models as vision
    import transformers

    class First(torch.nn.Module):
        """A module as a function of arrays with one result."""

        def __init__(self, module, pick, names=()):
            super().__init__()
            self.module, self.pick, self.names = module, pick, names

        def forward(self, *arrays):
            named = dict(zip(self.names, arrays))
            return self.pick(self.module(**named) if named else self.module(*arrays))

    def image(name, *shape, free=True, pick=None, family=vision, **settings):
        def make():
            module = getattr(family, name)(weights=None, **settings)
            return First(module, pick) if pick else module, {"x": torch.randn(*shape)}, free
        return make

    def text(kind, inputs=("input_ids",), **settings):
        def make():
            config = getattr(transformers, kind + "Config")(vocab_size=128, **settings)
            module = First(getattr(transformers, kind + "Model")(config), lambda result: result[0], inputs)
            return module, {name: torch.randint(3, 128, (2, 12)) for name in inputs}, True
        return make

    def recurrent(kind, **settings):
        def make():
            module = getattr(torch.nn, kind)(8, 16, 2, batch_first=True, **settings)
            return First(module, lambda result: result[0]), {"x": torch.randn(2, 5, 8)}, True
        return make

    class Rows(torch.nn.Module):
        """Fills a list row by row, as many as the batch."""

        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(8, 8)

        def forward(self, x):
            rows = []
            for i in range(x.shape[0]):
                rows.append(self.inner(x[i]) * (i + 1))
            return torch.stack(rows)

    class Unbound(Rows):
        """Takes its input apart row by row."""

        def forward(self, x):
            rows = []
            for row in torch.unbind(x):
                rows.insert(0, self.inner(row) + len(rows))
            return torch.cat(rows).reshape(len(rows), -1)

    class Pieces(Rows):
        """The number of its pieces is computed in floats, so that the model runs in parts."""

        def forward(self, x):
            sums = []
            for i in range(0, x.shape[0], 2):
                sums.append(self.inner(x[i:i + 2].sum(0)))
            return torch.stack(sums)

    def scripted(module):
        return lambda: (torch.jit.script(module()), {"x": torch.randn(5, 8)}, True)

    class Levels(torch.nn.Module):
        """Halves an image and brings it back, so that its sizes must be even."""

        def __init__(self):
            super().__init__()
            self.down, self.up = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ConvTranspose2d(8, 3, 2, 2)
            self.norm, self.pool = torch.nn.GroupNorm(2, 8), torch.nn.MaxPool2d(2)

        def forward(self, x):
            inner = torch.relu(self.norm(self.down(x)))
            return torch.cat([x, self.up(self.pool(inner))], 1), torch.nn.functional.pixel_unshuffle(inner, 2)

    class Windows(torch.nn.Module):
        """Attends within windows of four, of which a text has a whole number."""

        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            windows = x.reshape(-1, 4, 8)
            return self.attention(windows, windows, windows, need_weights=False)[0].reshape(x.shape)

    class Neighbours(torch.nn.Module):
        """Takes one row more of one input than of the other."""

        def forward(self, x, ends):
            return x * (ends[1:] - ends[:-1]), x.reshape(x.shape[0] // 2, -1)

    def sized(module, shapes, names, then):
        """`shapes`: of each input, the dimensions that are free, of three sizes; `then`: those of the arrays to export
        and to run with."""
        def make():
            dims = shapes(*(torch.export.Dim(name, min=1, max=64) for name in ("batch", "n", "m")))
            random = torch.Generator().manual_seed(1)
            first = {name: torch.randn(*sizes, generator=random) for name, sizes in zip(names, then[0])}
            second = {name: torch.randn(*sizes, generator=random) for name, sizes in zip(names, then[1])}
            return module(), first, (dims, second)
        return make

    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    segmented = dict(pick=lambda result: result["out"], family=vision.segmentation, weights_backbone=None)
    models = {name: image(name, 2, 3, 64, 64)
              for name in ("swin_t", "swin_v2_t", "efficientnet_b0", "densenet121", "mnasnet0_5", "shufflenet_v2_x0_5",
                           "squeezenet1_0", "convnext_tiny", "mobilenet_v3_small")}
    models.update({
        "googlenet": image("googlenet", 2, 3, 64, 64, init_weights=False),
        "inception_v3": image("inception_v3", 2, 3, 128, 128, init_weights=False),
        "maxvit_t": image("maxvit_t", 1, 3, 224, 224, free=False),
        "deeplabv3": image("deeplabv3_mobilenet_v3_large", 2, 3, 64, 64, **segmented),
        "lraspp": image("lraspp_mobilenet_v3_large", 2, 3, 64, 64, **segmented),
        "r3d_18": image("r3d_18", 1, 3, 8, 32, 32, family=vision.video),
        "swin3d_t": image("swin3d_t", 1, 3, 4, 64, 64, free=False, family=vision.video),
        "T5": text("T5", ("input_ids", "decoder_input_ids"), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
        "BERT": text("Bert", **small),
        "Longformer": text("Longformer", attention_window=[4, 4], max_position_embeddings=64, **small),
        "LSTM": recurrent("LSTM", bidirectional=True),
        "GRU": recurrent("GRU"),
        "rows": scripted(Rows),
        "unbound": scripted(Unbound),
        "pieces": scripted(Pieces),
        "levels": sized(Levels, lambda batch, n, m: [{0: batch, 2: 2 * n, 3: 2 * m}], ["x"],
                        [[(2, 3, 8, 12)], [(3, 3, 10, 6)]]),
        "multiples": sized(lambda: vision.resnet18(weights=None),
                           lambda batch, n, m: [{0: batch, 2: 32 * n, 3: 32 * m}], ["x"],
                           [[(2, 3, 64, 64)], [(3, 3, 96, 64)]]),
        "windows": sized(Windows, lambda batch, n, m: [{0: batch, 1: 4 * n}], ["x"], [[(2, 16, 8)], [(3, 12, 8)]]),
        "neighbours": sized(Neighbours, lambda batch, n, m: [{0: 2 * n}, {0: 2 * n + 1}], ["x", "ends"],
                            [[(6, 4), (7, 4)], [(10, 4), (11, 4)]]),
    })

    def export(name, path):
        torch.manual_seed(1)
        module, arrays, free = models[name]()
        if isinstance(free, tuple):
            shapes, others = free
            torch.onnx.export(module.eval(), tuple(arrays.values()), str(path), input_names=list(arrays), dynamo=True,
                              dynamic_shapes=tuple(shapes), verbose=False)
            return {each: array.numpy() for each, array in others.items()}
        torch.onnx.export(module.eval(), tuple(arrays.values()), str(path), input_names=list(arrays), opset_version=17,
                          dynamic_axes={each: {0: "batch"} for each in arrays} if free else None, dynamo=False)
        return {each: array.numpy() for each, array in arrays.items()}
    return models, export


def keras_models():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    import tf2onnx
    layers = tf.keras.layers

    def application(name, size):
        return lambda: getattr(tf.keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10)

    def sequential(shape, *made):
        return lambda: tf.keras.Sequential([layers.Input(shape), *made])

    models = {name: application(name, 96)
              for name in ("MobileNet", "MobileNetV2", "ResNet50", "ResNet50V2", "DenseNet121", "Xception", "InceptionV3")}
    models.update({
        "NASNetMobile": application("NASNetMobile", 64),
        "recurrent": sequential((6, 8), layers.LSTM(16, return_sequences=True), layers.Bidirectional(layers.GRU(8)),
                                layers.Dense(4)),
        "simple recurrent": sequential((6, 8), layers.SimpleRNN(16, return_sequences=True),
                                       layers.TimeDistributed(layers.Dense(4))),
        "convolutional LSTM": sequential((4, 8, 8, 3), layers.ConvLSTM2D(4, 3, padding="same"),
                                         layers.GlobalAveragePooling2D()),
        "up and down": sequential((16, 16, 3), layers.Conv2D(8, 3, strides=2, padding="same", activation="relu"),
                                  layers.Conv2DTranspose(8, 3, strides=2, padding="same"),
                                  layers.UpSampling2D(2, interpolation="bilinear"),
                                  layers.SeparableConv2D(4, 3, padding="same"), layers.PReLU()),
        "causal convolution": sequential((12, 16), layers.Conv1D(16, 5, padding="causal", dilation_rate=2),
                                         layers.GroupNormalization(4), layers.GlobalMaxPooling1D(),
                                         layers.Dense(3, activation="softmax")),
        "volumes": sequential((8, 8, 8, 2), layers.Conv3D(4, 3), layers.MaxPooling3D(2), layers.BatchNormalization(),
                              layers.Flatten(), layers.Dense(3)),
    })

    def export(name, path):
        tf.random.set_seed(1)
        model = models[name]()
        shape = model.input_shape[1:]
        function = tf.function(lambda x: model(x, training=False))
        tf2onnx.convert.from_function(function, input_signature=[tf.TensorSpec((None, *shape), tf.float32, name="x")],
                                      opset=17, output_path=str(path))
        return {"x": np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)}
    return models, export


def verify(tessera, folder, mesh):
    """'pass', or what Tessera says."""
    done = subprocess.run([tessera, "verify", folder / "model.onnx", "--inputs", folder / "inputs.npz", "--mesh", mesh,
                           "--against", "onnxruntime"],
                          capture_output=True, text=True, env=dict(os.environ, TESSERA_PYTHON=sys.executable))
    return "pass" if done.returncode == 0 else (done.stderr or done.stdout).strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the models, by default all")
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--keep", help="a folder for the models; by default, they are removed")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    exports = {}
    for family in (torch_models, keras_models):
        try:
            models, export = family()
        except ImportError as error:
            print(f"{family.__name__} are left out: {error}", file=sys.stderr)
            continue
        exports.update({name: export for name in models})
    if unknown := [name for name in arguments.names if name not in exports]:
        sys.exit(f"there is no model {', '.join(unknown)}; there are {', '.join(exports)}")
    failed = []
    print("| model | " + " | ".join(MESHES) + " |\n" + "|---" * (len(MESHES) + 1) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.names or exports:
            folder = pathlib.Path(arguments.keep or scratch) / name
            folder.mkdir(parents=True, exist_ok=True)
            np.savez(folder / "inputs.npz", **exports[name](name, folder / "model.onnx"))
            cells = [verify(arguments.tessera, folder, mesh) for mesh in MESHES]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
            if set(cells) != {"pass"}:
                failed.append(name)
    if failed or not exports:
        sys.exit(f"these fail: {', '.join(failed)}" if failed else "neither torch nor tensorflow is there")


if __name__ == "__main__":
    main()
