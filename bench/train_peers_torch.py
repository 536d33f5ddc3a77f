#!/usr/bin/env python3
"""The PyTorch engines of train_peers.py (see train_peers_step.py), one process for each rank, over Gloo.

`train_peers_torch.py prepare FOLDER` makes what all engines read: the weights, the ONNX model and the data.
"""
import datetime
import os
import sys

import numpy
import torch
import torch.distributed as dist
from torch import nn

from train_peers_step import (BATCH, CLIP, CORES, DECAY, HEADS, HIDDEN, LAYERS, RATE, SEQUENCE, VOCABULARY, load, report)


def hugging_face(tied=True):
    import transformers
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False,
                                tie_word_embeddings=tied))
    with torch.no_grad():  # else equal initial values make the exporter share one tensor among biases
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 1e-3)
    return model


class LogitsOf(nn.Module):
    """Hugging Face's model, called as Gpt2 is."""

    def __init__(self, model):
        super().__init__()
        self.m = model

    def forward(self, input_ids):
        return self.m(input_ids=input_ids).logits


def prepare(folder, batch=BATCH, sequence=SEQUENCE, parts=1, tied=True):
    """The model has the batch of one of the parts."""
    model = hugging_face(tied)
    numpy.savez(os.path.join(folder, "weights.npz"), **{n: p.detach().numpy() for n, p in model.named_parameters()})
    path = os.path.join(folder, "model.onnx")
    if not os.path.exists(path):
        with torch.no_grad():
            torch.onnx.export(LogitsOf(model.eval()), (torch.ones(batch, sequence, dtype=torch.int64),), path,
                              input_names=["input_ids"], output_names=["logits"], dynamo=True)
    random = numpy.random.default_rng(0)
    numpy.savez(os.path.join(folder, "data.npz"),
                **{name: random.integers(0, VOCABULARY, (16, parts * batch, sequence)) for name in ("input_ids", "labels")})


class Block(nn.Module):
    """The rows of `qkv` are (head, q|k|v, width), so that a slice of them is whole heads."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.qkv, self.proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        q, k, v = (t.transpose(1, 2) for t in self.qkv(self.ln_1(x)).unflatten(-1, (-1, 3, HIDDEN // HEADS)).unbind(3))
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(heads.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):

    def __init__(self, tied=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(1024, HIDDEN)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


THEIR_NAMES = {"qkv": "attn.c_attn", "proj": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}


def gpt2(folder, tied=True):
    model, weights = Gpt2(tied), load(folder, "weights")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            module = name.split(".")[-2]
            theirs = "transformer." + name.replace(module, THEIR_NAMES.get(module, module))
            value = torch.from_numpy(weights["lm_head.weight" if module == "head" else theirs])
            if module == "qkv":
                value = value.unflatten(-1, (3, HEADS, -1)).transpose(-3, -2).flatten(-3)
            parameter.copy_(value.t() if module in THEIR_NAMES else value)
    return model


def whole(model, mesh, dtype):
    return model


def data_parallel(model, mesh, dtype):
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def fully_sharded(model, mesh, dtype):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for module in [*model.h, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return model


def tensor_parallel(model, mesh, dtype):
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    parallelize_module(model, mesh, {
        "h.*.qkv": ColwiseParallel(), "h.*.proj": RowwiseParallel(),
        "h.*.up": ColwiseParallel(), "h.*.down": RowwiseParallel(),
        "wte": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(use_local_output=False)})
    model.head.weight = model.wte.weight  # both have the same slice of it
    return model


STRATEGIES = {"dp": data_parallel, "fsdp": fully_sharded, "tp": tensor_parallel}


def step_of(kind, folder, dtype):
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import loss_parallel
    strategy, compiled = kind.split()[-1], kind == "torch compiled"
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(CORES // ranks)
    mesh = None
    if ranks > 1:
        dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=ranks,
                                timeout=datetime.timedelta(minutes=10))
        mesh = dist.init_device_mesh("cpu", (ranks,))
    if kind == "torch hf":
        model = LogitsOf(hugging_face())
    else:
        model = STRATEGIES.get(strategy, whole)(gpt2(folder), mesh, dtype)
    model.train()
    # Optimizers and clipping take no tensors of two kinds at a time.
    groups = [[p for p in model.parameters() if isinstance(p, DTensor) == split] for split in (False, True)]
    groups = [group for group in groups if group]
    optimizer = torch.optim.AdamW([{"params": group} for group in groups], lr=RATE, weight_decay=DECAY,
                                  fused=not compiled)

    def clip():
        norms = [nn.utils.get_total_norm([p.grad for p in group]) for group in groups]
        norm = torch.linalg.vector_norm(torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]))
        for group in groups:
            nn.utils.clip_grads_with_norm_(group, CLIP, norm)

    def train(ids, labels):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16 and strategy != "fsdp"):
            logits = model(ids)
        if strategy == "tp":
            with loss_parallel():
                loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
                loss.backward()
        else:
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
            loss.backward()
        clip()
        optimizer.step()
        return loss

    run = torch.compile(train) if compiled else train
    own = slice(rank * BATCH // ranks, (rank + 1) * BATCH // ranks) if strategy in ("dp", "fsdp") else slice(None)

    def step(ids, labels):
        loss = run(torch.from_numpy(ids[own]), torch.from_numpy(labels[own])).detach()
        return loss.full_tensor() if isinstance(loss, DTensor) else loss

    return step


def main():
    if sys.argv[1] == "prepare":
        return prepare(sys.argv[2])
    kind, folder, steps, dtype, result = sys.argv[1:]
    report(result, step_of(kind, folder, getattr(torch, dtype)), folder, int(steps))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
