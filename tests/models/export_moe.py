#!/usr/bin/env python3
"""Makes the mixtures of experts of tests/models, with random parameters, and PyTorch's answers:

    export_moe.py FOLDER        (PyTorch 2.15, transformers 5.24, onnx 1.23; torch.onnx.export(dynamo=True))

    moe          Mixtral with two layers, as transformers writes it for export: matrices gathered for each choice
    moe-gpt-oss  a layer of gpt-oss: biases, gated units in pairs of columns, bounds
    moe-nonzero  a loop over experts, unrolled, which finds the tokens of each by NonZero
    moe-masks    a loop over experts, each of which computes all tokens, with a shared expert beside them
    moe-einsum   all experts and all tokens as Einsums
    moe-batch    the same as batches of products
    moe-apart    moe-masks whose router and experts keep batch and sequence apart
    moe-stacks   a loop over experts, unrolled, which cuts the matrices of each out of stacks, as in models whose stacks
                 are too large for the exporter to cut them itself
    moe-scan     the same as torch's scan, which becomes ONNX's
    moe-chosen   Einsums with matrices gathered for each choice, and biases, as OpenAI's own gpt-oss writes it
    moe-rows     products of rows by gathered matrices; router and experts keep batch and sequence apart
"""
import pathlib
import sys
import warnings

import numpy as np
import onnx
import torch
from torch import nn
from torch._higher_order_ops.scan import scan
from torch.nn import functional as F
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssConfig, GptOssMLP

HIDDEN, INNER, EXPERTS, CHOICES = 32, 24, 6, 2


def randomized(module):
    for parameter in module.parameters():
        if parameter.ndim > 1 or not isinstance(module, MixtralForCausalLM):  # norms keep their ones
            nn.init.normal_(parameter, std=0.3)
    return module.eval()


def routed(logits):
    """Probabilities, weights that add up to one, and choices."""
    probabilities = F.softmax(logits, -1)
    weights, choices = torch.topk(probabilities, CHOICES, -1)
    return probabilities, weights / weights.sum(-1, keepdim=True), choices


class Mixtral(nn.Module):
    def __init__(self):
        super().__init__()
        config = MixtralConfig(vocab_size=96, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=2,
                               num_attention_heads=4, num_key_value_heads=2, num_local_experts=EXPERTS,
                               num_experts_per_tok=CHOICES, max_position_embeddings=64, tie_word_embeddings=False,
                               use_cache=False, sliding_window=None)
        config._attn_implementation, config._experts_implementation = "sdpa", "batched_mm"
        self.model = randomized(MixtralForCausalLM(config))

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


class GptOss(nn.Module):
    def __init__(self):
        super().__init__()
        config = GptOssConfig(hidden_size=HIDDEN, intermediate_size=INNER, num_local_experts=EXPERTS,
                              num_experts_per_tok=CHOICES)
        config._experts_implementation = "batched_mm"
        self.layer = GptOssMLP(config)

    def forward(self, x):
        return self.layer(x)[0]


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.w3 = nn.Linear(HIDDEN, INNER, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])
        self.shared = Expert()

    def forward(self, x):
        rows = x.reshape(-1, HIDDEN)
        return self.mixed(rows, *routed(self.gate(rows))).reshape(x.shape)


class NonZero(Loop):
    def mixed(self, x, probabilities, weights, choices):
        result = torch.zeros_like(x)
        masks = F.one_hot(choices, EXPERTS).permute(2, 1, 0)
        for number, expert in enumerate(self.experts):
            slot, token = torch.where(masks[number])
            result.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return result


class Masks(Loop):
    def mixed(self, x, probabilities, weights, choices):
        matrix = torch.zeros_like(probabilities).scatter(1, choices, weights)
        result = self.shared(x)
        for number, expert in enumerate(self.experts):
            result = result + expert(x) * matrix[:, number:number + 1]
        return result


class Apart(Loop):
    def forward(self, x):
        return self.mixed(x, *routed(self.gate(x)))

    def mixed(self, x, probabilities, weights, choices):
        matrix = torch.zeros_like(probabilities).scatter(-1, choices, weights)
        result = self.shared(x)
        for number, expert in enumerate(self.experts):
            result = result + expert(x) * matrix[..., number:number + 1]
        return result


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.w1 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, 2 * INNER))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, INNER, HIDDEN))

    def forward(self, x):
        rows = x.reshape(-1, HIDDEN)
        return self.mixed(rows, *routed(self.gate(rows))).reshape(x.shape)


class Einsum(Stacked):
    def mixed(self, x, probabilities, weights, choices):
        matrix = (F.one_hot(choices, EXPERTS).to(weights.dtype) * weights[..., None]).sum(1)
        g, u = torch.einsum("th,ehf->tef", x, self.w1).chunk(2, -1)
        return torch.einsum("teh,te->th", torch.einsum("tef,efh->teh", u * F.silu(g), self.w2), matrix)


class Batch(Stacked):
    def mixed(self, x, probabilities, weights, choices):
        matrix = torch.zeros_like(probabilities).scatter(1, choices, weights)
        g, u = torch.bmm(x.repeat(EXPERTS, 1).view(EXPERTS, -1, HIDDEN), self.w1).chunk(2, -1)
        return (torch.bmm(u * F.silu(g), self.w2) * matrix.transpose(0, 1)[..., None]).sum(0)


def unit(gu):
    g, u = gu.chunk(2, -1)
    return u * F.silu(g)


class Stacks(Stacked):
    def mixed(self, x, probabilities, weights, choices):
        result = torch.zeros_like(x)
        for number in range(EXPERTS):
            weight = (weights * (choices == number)).sum(-1, keepdim=True)
            result = result + unit(x @ self.w1[number]) @ self.w2[number] * weight
        return result


class Scan(Stacked):
    def mixed(self, x, probabilities, weights, choices):
        matrix = torch.zeros_like(probabilities).scatter(1, choices, weights)

        def add(result, expert):
            w1, w2, weight = expert
            return result + unit(x @ w1) @ w2 * weight[:, None], torch.zeros(1)

        return scan(add, torch.zeros_like(x), (self.w1, self.w2, matrix.t()))[0]


class Chosen(Stacked):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(EXPERTS, 2 * INNER, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, INNER))
        self.b1, self.b2 = nn.Parameter(torch.empty(EXPERTS, 2 * INNER)), nn.Parameter(torch.empty(EXPERTS, HIDDEN))

    def mixed(self, x, probabilities, weights, choices):
        h = unit(torch.einsum("beck,bk->bec", self.w1[choices], x) + self.b1[choices])
        y = torch.einsum("beck,bek->bec", self.w2[choices], h) + self.b2[choices]
        return torch.einsum("bec,be->bc", y, weights)


class Rows(Stacked):
    def forward(self, x):
        _, weights, choices = routed(self.gate(x))
        y = unit(x[:, :, None, None, :] @ self.w1[choices]) @ self.w2[choices]
        return (y.squeeze(-2) * weights[..., None]).sum(-2)


def without_notes(model):
    """PyTorch's notes of where nodes come from are longer than the parameters."""
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*model.graph.input, *model.graph.output]:
        del value.metadata_props[:]
    del model.graph.value_info[:], model.graph.metadata_props[:], model.metadata_props[:]
    for function in model.functions:
        del function.metadata_props[:]
    return model


def export(folder, name, module, operand, operand_name, result_name):
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    dims = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")},)
    # PyTorch's scan takes no free extents.
    program = torch.onnx.export(module, (operand,), dynamo=True, verbose=False, input_names=[operand_name],
                                output_names=[result_name], dynamic_shapes=None if name == "moe-scan" else dims)
    program.save(folder / "model.onnx")
    model = without_notes(onnx.load(folder / "model.onnx"))
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    with torch.no_grad():
        result = module(operand)
    np.savez(folder / "inputs_0.npz", **{operand_name: operand.numpy()})
    np.savez(folder / "outputs_0.npz", **{result_name: result.numpy()})


def main(folder):
    warnings.filterwarnings("ignore")
    torch.manual_seed(3)
    export(folder, "moe", Mixtral(), torch.randint(0, 96, (2, 7)), "input_ids", "logits")
    forms = {"moe-gpt-oss": GptOss, "moe-nonzero": NonZero, "moe-masks": Masks, "moe-einsum": Einsum, "moe-batch": Batch,
             "moe-apart": Apart, "moe-stacks": Stacks, "moe-scan": Scan, "moe-chosen": Chosen, "moe-rows": Rows}
    for seed, (name, form) in enumerate(forms.items()):
        torch.manual_seed(seed)
        export(folder, name, randomized(form()), torch.randn(2, 5, HIDDEN), "x", "y")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
