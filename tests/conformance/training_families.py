#!/usr/bin/env python3
"""Trains small models of several families, as PyTorch exports them, for six AdamW steps beside PyTorch.

    venv/bin/pip install torch transformers onnx onnxscript numpy
    venv/bin/python tests/conformance/training_families.py [NAME...] [--tessera build/tessera] [--keep FOLDER]

Each model is exported twice, with optimize=True (the exporter's default) and optimize=False. PyTorch then trains those
parameters that `tessera train --json` says that it trains; losses must agree within 3e-6, and parameters within 1e-3.
With optimize=False these must be all parameters that the model trains; with optimize=True, all but those that LOST lists.
Copies in the file of --save-final must be alike. Prints a row for each model; the exit code is 1 if one differs. Weights
are random. Needs some 3 minutes.
"""
import argparse
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers

STEPS, RATE, DECAY = 6, 1e-3, 0.01
TOKENS, LENGTH, CLASSES = 128, 12, 5
MESHES = ["", "dp=2", "tp=2"]
TEXT = dict(vocab_size=TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
DROPS = dict(dropout=0.0, attention_dropout=0.0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
             resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, dropout_rate=0.0)
# What optimize=True computes at export: patterns of parameters that do not train then.
LOST = {
    "gemma2": [r".*norm\.weight"],  # 1 + weight
    "t5": [r".*relative_attention_bias\.weight"],  # expanded to the length of the text
    "whisper": [r".*embed_positions\.weight"],  # repeated for each sample
    "batchnorm": [r"n\d\.(weight|bias)"],  # fused with the convolutions before them
    "clip": [r".*logit_scale", r".*class_embedding"],  # exponential; repeated for each sample
}
# Models whose parameters hold others, so that they are not PyTorch's.
FUSED = {"batchnorm"}
# Parameters that the model itself freezes, which no file says: people name them.
FREEZE = {"whisper": ["*encoder.embed_positions.weight"]}


class Result(torch.nn.Module):
    """A model of transformers as a function of arrays, with one result."""

    def __init__(self, model, names, result="logits", **settings):
        super().__init__()
        self.m, self.names, self.result, self.settings = model, names, result, settings

    def forward(self, *arrays):
        return getattr(self.m(**dict(zip(self.names, arrays)), **self.settings), self.result)


class Normalized(torch.nn.Module):
    """Two convolutions with norms, and a scaling between them, whose factors an operator must know."""

    def __init__(self, first, second):
        super().__init__()
        self.c1, self.n1 = torch.nn.Conv2d(3, 8, 3, padding=1), first
        self.c2, self.n2 = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False), second
        self.up, self.f = torch.nn.Upsample(scale_factor=2), torch.nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.up(torch.relu(self.n1(self.c1(x))))
        return self.f(torch.relu(self.n2(self.c2(x))).mean((2, 3)))


def ids(*shape):
    return torch.randint(3, TOKENS, shape)


def text(kind, head, inputs=("input_ids",), cached=True, **settings):
    config = getattr(transformers, kind + "Config")(**{**TEXT, **DROPS, **settings})
    settings = dict(use_cache=False) if cached else {}
    return Result(getattr(transformers, kind + head)(config), inputs, **settings), [lambda: ids(2, LENGTH)] * len(inputs)


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=TOKENS, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=16,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        begin_suppress_tokens=None, suppress_tokens=None, dropout=0.0, attn_implementation="eager")
    model = transformers.WhisperForConditionalGeneration(config)
    arrays = [lambda: torch.randn(2, 8, 32), lambda: ids(2, LENGTH)]
    return Result(model, ("input_features", "decoder_input_ids"), use_cache=False), arrays


def clip():
    image = dict(image_size=16, patch_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                 num_attention_heads=4, projection_dim=16)
    words = {key: value for key, value in TEXT.items() if key != "attn_implementation"}
    config = transformers.CLIPConfig(text_config=dict(words, projection_dim=16), vision_config=image, projection_dim=16,
                                     attn_implementation="eager")
    arrays = [lambda: ids(2, LENGTH), lambda: torch.randn(2, 3, 16, 16)]
    return Result(transformers.CLIPModel(config), ("input_ids", "pixel_values"), "logits_per_text"), arrays


def image(first, second):
    return Normalized(first, second), [lambda: torch.randn(2, 3, 8, 8)]


GROUPED = dict(num_key_value_heads=2)
FAMILIES = {
    "gpt2": lambda: text("GPT2", "LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "bert": lambda: text("Bert", "ForMaskedLM", cached=False),
    "qwen2": lambda: text("Qwen2", "ForCausalLM", tie_word_embeddings=True, **GROUPED),
    "gemma2": lambda: text("Gemma2", "ForCausalLM", head_dim=8, sliding_window=4, query_pre_attn_scalar=8, **GROUPED),
    "mixtral": lambda: text("Mixtral", "ForCausalLM", num_local_experts=4, experts_implementation="batched_mm",
                            **GROUPED),
    "t5": lambda: text("T5", "ForConditionalGeneration", ("input_ids", "decoder_input_ids"), d_model=32, d_kv=8,
                       d_ff=64, num_layers=2, num_heads=4),
    "whisper": whisper,
    "groupnorm": lambda: image(torch.nn.GroupNorm(2, 8), torch.nn.GroupNorm(4, 8, affine=False)),
    "batchnorm": lambda: image(torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(8)),
    "clip": clip,
}


def made(name):
    """A model with parameters no two of which are equal, since the exporter merges equal ones."""
    torch.manual_seed(1)
    module, arrays = FAMILIES[name]()
    module.eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn(parameter.shape)
    return module, arrays


def run(tessera, folder, *words):
    done = subprocess.run([tessera, "train", folder / "model.onnx", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout)


def torch_steps(module, inputs, labels, trained):
    for name, parameter in module.named_parameters(remove_duplicate=False):
        parameter.requires_grad_(False)
    chosen = {id(p): p for n, p in module.named_parameters(remove_duplicate=False) if n in trained}
    for parameter in chosen.values():
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(chosen.values(), lr=RATE, weight_decay=DECAY)
    losses, largest = [], {key: torch.zeros_like(p) for key, p in chosen.items()}
    for step in range(STEPS):
        logits = module(*(array[step] for array in inputs))
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels[step].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        for key, parameter in chosen.items():
            if parameter.grad is not None:
                largest[key] = torch.maximum(largest[key], parameter.grad.abs())
        optimizer.step()
        losses.append(loss.item())
    return losses, {key: (seen > 1e-7).numpy() for key, seen in largest.items()}


def distance(got, wanted, seen=None):
    """Of a tensor of the file from PyTorch's parameter, which it holds as it is, transposed, or some rows of. Elements
    whose gradients are rounding errors, as those of a bias that every score has, move by chance and do not count."""
    seen = np.ones(wanted.shape, bool) if seen is None else seen
    if got.size != wanted.size:
        got = got.reshape(-1, got.shape[-1])
        wanted, seen = wanted[:len(got)], seen[:len(got)]
    forms = [(wanted.reshape(got.shape), seen.reshape(got.shape))]
    if wanted.T.shape == got.shape:
        forms.append((wanted.T, seen.T))
    return min(np.linalg.norm((got - form) * counts) / max(np.linalg.norm(form), 1e-9) for form, counts in forms)


def compare(tessera, name, optimize, folder):
    """What differs; "" if nothing does. And a cell that says what was compared."""
    module, arrays = made(name)
    torch.onnx.export(module, tuple(make() for make in arrays), dynamo=True, optimize=optimize,
                      verbose=False).save(folder / "model.onnx")
    inputs = [torch.stack([make() for _ in range(STEPS)]) for make in arrays]
    with torch.no_grad():
        logits = module(*(array[0] for array in inputs))
    labels = torch.randint(0, logits.shape[-1], (STEPS, *logits.shape[:-1]))
    names = [value.name for value in __import__("onnx").load(folder / "model.onnx", load_external_data=False).graph.input]
    np.savez(folder / "data.npz", labels=labels.numpy(), **{n: a.numpy() for n, a in zip(names, inputs)})
    words = ["--data", folder / "data.npz", "--optimizer", f"adamw:weight_decay={DECAY}", "--lr", str(RATE), "--json"]
    for pattern in FREEZE.get(name, []):
        words += ["--freeze", pattern]
    summary = run(tessera, folder, *words, "--save-final", folder / "after.npz")
    tensors = summary["selection"]["tensors"]
    trained = {n for t in tensors if t["trains"] for n in [t["name"], *t.get("sources", [])]}
    held = {id(p) for n, p in module.named_parameters(remove_duplicate=False) if n in trained}  # by any of its names
    excused = LOST.get(name, []) if optimize else []
    lost = [n for n, p in module.named_parameters()
            if p.requires_grad and id(p) not in held and not any(re.fullmatch(pattern, n) for pattern in excused)]
    if lost:
        return f"does not train {', '.join(lost)}", ""
    module, _ = made(name)  # an export may leave something in the first one
    if optimize and name in FUSED:
        return "", f"{sum(t['trains'] for t in tensors)} train, fused"
    losses, seen = torch_steps(module, inputs, labels, trained)
    worst = max(abs(a - b) / abs(b) for a, b in zip(summary["losses"], losses))
    for mesh in MESHES[1:]:
        split = run(tessera, folder, *words, "--mesh", mesh)
        worst = max(worst, max(abs(a - b) / abs(b) for a, b in zip(split["losses"], losses)))
    after = np.load(folder / "after.npz")
    parameters = dict(module.named_parameters(remove_duplicate=False))
    apart = 0.0
    for tensor in tensors:
        held = [n for n in [tensor["name"], *tensor.get("sources", [])] if n in parameters]
        if tensor["trains"] and held:
            wanted = parameters[held[0]]
            apart = max(apart, distance(after[tensor["name"]], wanted.detach().numpy(), seen[id(wanted)]))
        if "tied_to" in tensor and distance(after[tensor["name"]], after[tensor["tied_to"]]) > 0:
            return f"{tensor['name']} is not {tensor['tied_to']}", ""
    text = f"{worst:.0e}, {apart:.0e}; {sum(t['trains'] and 'tied_to' not in t for t in tensors)} train"
    return "" if worst < 3e-6 and apart < 1e-3 else "differs", text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAMILIES))
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--keep", help="a folder for the models; by default, they are removed")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    failed = []
    print("| family | optimize=True: losses, parameters | optimize=False |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.names or FAMILIES:
            cells = []
            for optimize in (True, False):
                folder = pathlib.Path(arguments.keep or scratch) / f"{name}-{'optimized' if optimize else 'plain'}"
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    problem, cell = compare(os.path.abspath(arguments.tessera), name, optimize, folder)
                except Exception as error:  # of the exporter or of Tessera: a row of the table
                    problem, cell = str(error).splitlines()[0], ""
                cells.append("; ".join(part for part in (cell, problem) if part))
                if problem:
                    failed.append(name)
            print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)
    if failed:
        sys.exit(f"these differ: {', '.join(sorted(set(failed)))}")


if __name__ == "__main__":
    main()
