#!/usr/bin/env python3
"""Writes the full-size models that bench/peers.py times: real architectures, random weights (times do not depend on them).

    python3 -m venv venv && venv/bin/pip install torch transformers onnx onnxscript
    venv/bin/python bench/export_models.py DIR [NAME...]      # DIR/NAME/model.onnx, 0.1 to 0.9 GB each
"""
import os
import sys

import torch
import transformers

TEXT = {0: "batch", 1: "sequence"}
IMAGE = {0: "batch"}


def text_model(model, inputs, output):
    """The model of token ids (and masks, where it takes them) to one named result, with a free batch and sequence."""

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *arrays):
            options = {} if "attention_mask" in inputs else {"use_cache": False}
            return getattr(self.model(**dict(zip(inputs, arrays)), **options), output)

    arrays = tuple(torch.ones(2, 16, dtype=torch.int64) for _ in inputs)
    return Wrapped(), arrays, inputs, output, {name: TEXT for name in inputs}


def image_model(model):
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, pixels):
            return self.model(pixel_values=pixels).logits

    return Wrapped(), (torch.zeros(2, 3, 224, 224),), ["pixel_values"], "logits", {"pixel_values": IMAGE}


def gpt2_small():
    config = transformers.GPT2Config(attn_implementation="eager")
    return text_model(transformers.GPT2LMHeadModel(config), ["input_ids"], "logits")


def bert_base():
    config = transformers.BertConfig(attn_implementation="eager")
    return text_model(transformers.BertModel(config), ["input_ids", "attention_mask"], "last_hidden_state")


def llama_300m():
    config = transformers.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, vocab_size=32000,
                                      num_attention_heads=16, num_key_value_heads=4, attn_implementation="eager")
    return text_model(transformers.LlamaForCausalLM(config), ["input_ids"], "logits")


def vit_base():
    config = transformers.ViTConfig(num_labels=1000, attn_implementation="eager")
    return image_model(transformers.ViTForImageClassification(config))


def resnet50():
    return image_model(transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000)))


MODELS = {"gpt2-small": gpt2_small, "bert-base": bert_base, "llama-300m": llama_300m, "vit-base": vit_base,
          "resnet50": resnet50}


def main():
    if len(sys.argv) < 2 or any(name not in MODELS for name in sys.argv[2:]):
        sys.exit(f"usage: export_models.py DIR [NAME...], of {', '.join(MODELS)}")
    for name in sys.argv[2:] or MODELS:
        torch.manual_seed(0)
        model, arrays, inputs, output, dynamic = MODELS[name]()
        folder = os.path.join(sys.argv[1], name)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "model.onnx")
        with torch.no_grad():
            torch.onnx.export(model.eval(), arrays, path, input_names=inputs, output_names=[output],
                              dynamic_axes=dynamic, opset_version=18, dynamo=False)
        print(path)


if __name__ == "__main__":
    main()
