#!/usr/bin/env python3
"""The JAX engines of train_peers.py (see train_peers_step.py). Ranks are host devices of one process."""
import os
import sys

ranks = int(os.environ["WORLD_SIZE"])
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={ranks}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from train_peers_step import CLIP, DECAY, HEADS, HIDDEN, LAYERS, RATE, load, report

# The dimension of a weight that tensor parallelism splits: columns first, then rows. Others are whole.
TENSOR_PARALLEL = {"attn.c_attn.weight": 2, "attn.c_attn.bias": 1, "attn.c_proj.weight": 0,
                   "mlp.c_fc.weight": 1, "mlp.c_fc.bias": 0, "mlp.c_proj.weight": 0}


def layout(strategy, name, shape):
    """Which dimension of a weight is split over the ranks."""
    dimension = None
    if strategy == "tp":
        # XLA splits evenly, so the vocabulary is whole, and the table's width is split.
        dimension = TENSOR_PARALLEL.get(name.split(".", 3)[-1], 1 if name.endswith("wte.weight") else None)
    elif strategy == "fsdp":
        dimension = next((d for d, extent in enumerate(shape) if extent % ranks == 0), None)
    return PartitionSpec(*(("ranks" if d == dimension else None) for d in range(len(shape))))


def loss_of(w, ids, labels, compute):
    batch, sequence = ids.shape

    def norm(x, name):
        x = x.astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return ((x - mean) / jnp.sqrt(var + 1e-5) * w[name + ".weight"] + w[name + ".bias"]).astype(compute)

    def dense(x, name):
        return x @ w[name + ".weight"].astype(compute) + w[name + ".bias"].astype(compute)

    x = (w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:sequence]).astype(compute)
    mask = jnp.tril(jnp.ones((sequence, sequence), bool))
    for i in range(LAYERS):
        h = f"transformer.h.{i}."
        qkv = jnp.einsum("bsi,ino->nbso", norm(x, h + "ln_1"), w[h + "attn.c_attn.weight"].astype(compute))
        qkv = qkv + w[h + "attn.c_attn.bias"].astype(compute)[:, None, None]
        q, k, v = qkv.reshape(3, batch, sequence, HEADS, -1).transpose(0, 1, 3, 2, 4)
        scores = (q @ k.transpose(0, 1, 3, 2)).astype(jnp.float32) / numpy.sqrt(HIDDEN // HEADS)
        out = jax.nn.softmax(jnp.where(mask, scores, -1e30)).astype(compute) @ v
        x = x + dense(out.transpose(0, 2, 1, 3).reshape(batch, sequence, HIDDEN), h + "attn.c_proj")
        x = x + dense(jax.nn.gelu(dense(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate=True), h + "mlp.c_proj")
    logits = (norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T.astype(compute)).astype(jnp.float32)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()


def train(w, m, v, t, ids, labels, compute):
    loss, g = jax.value_and_grad(loss_of)(w, ids, labels, compute)
    size = jnp.sqrt(sum((x ** 2).sum() for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1, CLIP / (size + 1e-6)), g)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    w = jax.tree.map(lambda p, a, b: p * (1 - RATE * DECAY) - RATE * (a / (1 - 0.9 ** t)) /
                     (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8), w, m, v)
    return loss, w, m, v


def step_of(kind, folder, dtype):
    strategy = kind.split()[-1]
    mesh = jax.make_mesh((ranks,), ("ranks",), axis_types=(AxisType.Auto,))
    weights = dict(load(folder, "weights"))
    for name, value in weights.items():
        if "c_attn" in name:  # q, k and v apart, so that a slice of the last dimension is whole heads
            weights[name] = value.reshape(*value.shape[:-1], 3, HIDDEN)
    layouts = {name: NamedSharding(mesh, layout(strategy, name, value.shape)) for name, value in weights.items()}
    rows = NamedSharding(mesh, PartitionSpec("ranks" if strategy in ("dp", "fsdp") else None))
    one = NamedSharding(mesh, PartitionSpec())
    w = {name: jax.device_put(weights.pop(name), layouts[name]) for name in list(weights)}
    m, v = ({name: jax.device_put(numpy.zeros(x.shape, x.dtype), layouts[name]) for name, x in w.items()} for _ in "mv")
    run = jax.jit(train, static_argnames="compute", donate_argnums=(0, 1, 2),
                  out_shardings=(one, layouts, layouts, layouts))
    t = 0.0

    def step(ids, labels):
        nonlocal w, m, v, t
        t += 1
        loss, w, m, v = run(w, m, v, t, jax.device_put(ids, rows), jax.device_put(labels, rows), compute=dtype)
        jax.block_until_ready(w)
        return loss

    return step


def main():
    kind, folder, steps, dtype, result = sys.argv[1:]
    report(result, step_of(kind, folder, dtype), folder, int(steps))


if __name__ == "__main__":
    main()
