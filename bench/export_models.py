#!/usr/bin/env python3
"""Writes the full-size models that bench/peers.py times: real architectures, random weights (times do not depend on them).

    python3 -m venv venv && venv/bin/pip install torch transformers onnx onnxscript
    venv/bin/python bench/export_models.py DIR [NAME...]      # DIR/NAME/model.onnx, 0.1 to 0.9 GB each

Everything is left at its default: attention is scaled_dot_product_attention, the exporter torch.onnx.export's own.
NAME-torchscript is the same by the older exporter (dynamo=False), which needs the mask of language models as an input;
NAME-decode continues a text by what its cache of keys and values holds.
"""
import os
import sys

import torch
import transformers

TEXT = {0: "batch", 1: "sequence"}
IMAGE = {0: "batch"}
CACHE = {0: "batch", 2: "past"}


class Call(torch.nn.Module):
    """A model with named inputs and one result, as a function of arrays."""

    def __init__(self, model, inputs, output, **options):
        super().__init__()
        self.model, self.inputs, self.output, self.options = model, inputs, output, options

    def forward(self, *arrays):
        return getattr(self.model(**dict(zip(self.inputs, arrays)), **self.options), self.output)


class Decode(torch.nn.Module):
    """A language model with its cache of keys and values, flat, as inputs and outputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *arrays):
        tokens, *past = arrays
        cache = transformers.DynamicCache(config=self.model.config)
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        result = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
        return (result.logits, *(x for layer in result.past_key_values.layers for x in (layer.keys, layer.values)))


def text_model(model, inputs, output, **options):
    """The model of token ids (and masks) to one named result, with a free batch and sequence."""
    arrays = tuple(torch.ones(2, 16, dtype=torch.int64) for _ in inputs)
    return Call(model, inputs, output, **options), arrays, {name: TEXT for name in inputs}, [output]


def image_model(model):
    return Call(model, ["pixel_values"], "logits"), (torch.zeros(2, 3, 224, 224),), {"pixel_values": IMAGE}, ["logits"]


def language_model(model, kind):
    """By kind: "" takes a text, "torchscript" a mask too, "decode" the text's cache and one token or more."""
    if kind != "decode":
        inputs = ["input_ids", "attention_mask"] if kind == "torchscript" else ["input_ids"]
        return text_model(model, inputs, "logits", use_cache=False)
    config = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    shape = (2, heads, 5, config.hidden_size // config.num_attention_heads)
    slots = [f"{layer}.{part}" for layer in range(config.num_hidden_layers) for part in ("key", "value")]
    arrays = (torch.ones(2, 3, dtype=torch.int64), *(torch.zeros(shape) for _ in slots))
    return (Decode(model), arrays, {"input_ids": TEXT, **{f"past.{slot}": CACHE for slot in slots}},
            ["logits", *(f"present.{slot}" for slot in slots)])


def gpt2_small(kind):
    return language_model(transformers.GPT2LMHeadModel(transformers.GPT2Config()), kind)


def llama_300m(kind):
    config = transformers.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, vocab_size=32000,
                                      num_attention_heads=16, num_key_value_heads=4)
    return language_model(transformers.LlamaForCausalLM(config), kind)


def bert_base(kind):
    model = transformers.BertModel(transformers.BertConfig())
    return text_model(model, ["input_ids", "attention_mask"], "last_hidden_state")


def vit_base(kind):
    return image_model(transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)))


def resnet50(kind):
    return image_model(transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000)))


BASES = {"gpt2-small": gpt2_small, "bert-base": bert_base, "llama-300m": llama_300m, "vit-base": vit_base,
         "resnet50": resnet50}
MODELS = {name: (make, "") for name, make in BASES.items()}
MODELS |= {f"{name}-torchscript": (make, "torchscript") for name, make in BASES.items()}
MODELS |= {f"{name}-decode": (BASES[name], "decode") for name in ("gpt2-small", "llama-300m")}


def main():
    if len(sys.argv) < 2 or any(name not in MODELS for name in sys.argv[2:]):
        sys.exit(f"usage: export_models.py DIR [NAME...], of {', '.join(MODELS)}")
    for name in sys.argv[2:] or MODELS:
        torch.manual_seed(0)
        make, kind = MODELS[name]
        model, arrays, dynamic, outputs = make(kind)
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "model.onnx")
        names = {"input_names": list(dynamic), "output_names": outputs}
        with torch.no_grad():
            if kind == "torchscript":
                torch.onnx.export(model.eval(), arrays, path, dynamic_axes=dynamic, dynamo=False, **names)
            else:
                torch.onnx.export(model.eval(), arrays, path, dynamic_shapes=(tuple(dynamic.values()),), **names)
        print(path)


if __name__ == "__main__":
    main()
