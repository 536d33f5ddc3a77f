#!/usr/bin/env python3
"""Times one training step of GPT-2 small (12 layers, hidden 768, batch 2 x sequence 256, AdamW, clip 1.0) in Tessera and in
its peers, on the same cores, taking turns.

    python3 -m venv venv && venv/bin/pip install torch transformers onnx onnxscript numpy      # and jax, for --jax
    venv/bin/python bench/train_peers.py [--tessera build/tessera] [--rounds 3] [--steps 3] [--dtype float32,bfloat16]

Prints, for each dtype, the FLOPs of a step's matrix products, and for each engine the median step, the FLOPs per second that
this means, its ratio to the fastest peer, the losses (they must agree) and the peak memory of the process.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

BATCH, SEQUENCE, RATE = 2, 256, 1e-4
PRODUCT_PARAMETERS = 12 * (12 * 768 * 768) + 50257 * 768
# Forward and backward of every product with a weight, and of attention's two products with each other's results.
FLOPS = 6 * BATCH * SEQUENCE * PRODUCT_PARAMETERS + 12 * 12 * BATCH * SEQUENCE * SEQUENCE * 768


def make_model():
    import torch
    import transformers
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False))
    with torch.no_grad():  # else equal initial values make the exporter share one tensor among biases
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 1e-3)
    return model


def prepare(folder, steps):
    import numpy
    import torch
    path = os.path.join(folder, "model.onnx")
    model = make_model().eval()

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = model

        def forward(self, input_ids):
            return self.m(input_ids=input_ids).logits

    with torch.no_grad():
        torch.onnx.export(Logits(), (torch.ones(BATCH, SEQUENCE, dtype=torch.int64),), path, input_names=["input_ids"],
                          output_names=["logits"], dynamo=True)
    random = numpy.random.default_rng(0)
    numpy.savez(os.path.join(folder, "data.npz"), input_ids=random.integers(0, 50257, (steps, BATCH, SEQUENCE)),
                labels=random.integers(0, 50257, (steps, BATCH, SEQUENCE)))


def torch_worker(folder, steps, dtype, compiled):
    import numpy
    import torch
    torch.set_num_threads(2)
    model = make_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, fused=False)
    data = numpy.load(os.path.join(folder, "data.npz"))

    def step(ids, labels):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16"):
            logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = torch.compile(step) if compiled else step
    times, losses = [], []
    for i in range(steps):
        ids, labels = (torch.from_numpy(data[name][i]) for name in ("input_ids", "labels"))
        start = time.perf_counter()
        losses.append(float(run(ids, labels).detach()))
        times.append(time.perf_counter() - start)
    return times, losses


def jax_worker(folder, steps, dtype):
    import jax
    import jax.numpy as jnp
    import numpy
    weights = {name: jnp.asarray(value.detach().numpy()) for name, value in make_model().named_parameters()}
    compute = jnp.bfloat16 if dtype == "bfloat16" else jnp.float32

    def norm(x, name, w):
        x = x.astype(jnp.float32)
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return ((x - mean) / jnp.sqrt(var + 1e-5) * w[name + ".weight"] + w[name + ".bias"]).astype(compute)

    def dense(x, name, w):
        return x @ w[name + ".weight"].astype(compute) + w[name + ".bias"].astype(compute)

    def loss_of(w, ids, labels):
        b, s = ids.shape
        x = (w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:s]).astype(compute)
        mask = jnp.tril(jnp.ones((s, s), bool))
        for i in range(12):
            h = f"transformer.h.{i}."
            q, k, v = jnp.split(dense(norm(x, h + "ln_1", w), h + "attn.c_attn", w), 3, -1)
            q, k, v = (t.reshape(b, s, 12, 64).transpose(0, 2, 1, 3) for t in (q, k, v))
            scores = jnp.where(mask, (q @ k.transpose(0, 1, 3, 2)).astype(jnp.float32) / 8, -1e30)
            out = (jax.nn.softmax(scores).astype(compute) @ v).transpose(0, 2, 1, 3).reshape(b, s, 768)
            x = x + dense(out, h + "attn.c_proj", w)
            x = x + dense(jax.nn.gelu(dense(norm(x, h + "ln_2", w), h + "mlp.c_fc", w), approximate=True),
                          h + "mlp.c_proj", w)
        logits = (norm(x, "transformer.ln_f", w) @ w["transformer.wte.weight"].T.astype(compute)).astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1).mean()

    @jax.jit
    def step(w, m, v, t, ids, labels):
        loss, g = jax.value_and_grad(loss_of)(w, ids, labels)
        size = jnp.sqrt(sum((x ** 2).sum() for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x * jnp.minimum(1, 1 / (size + 1e-6)), g)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
        w = jax.tree.map(lambda p, a, b: p * (1 - RATE * 0.01) - RATE * (a / (1 - 0.9 ** t)) /
                         (jnp.sqrt(b / (1 - 0.999 ** t)) + 1e-8), w, m, v)
        return loss, w, m, v

    step = jax.jit(step, donate_argnums=(0, 1, 2))
    m = jax.tree.map(jnp.zeros_like, weights)
    v = jax.tree.map(jnp.zeros_like, weights)
    data = numpy.load(os.path.join(folder, "data.npz"))
    times, losses = [], []
    for i in range(steps):
        start = time.perf_counter()
        loss, weights, m, v = step(weights, m, v, i + 1.0, data["input_ids"][i], data["labels"][i])
        jax.block_until_ready(weights)
        losses.append(float(loss))
        times.append(time.perf_counter() - start)
    return times, losses


def worker(kind, folder, steps, dtype):
    if kind == "jax":
        times, losses = jax_worker(folder, steps, dtype)
    else:
        times, losses = torch_worker(folder, steps, dtype, kind == "torch compiled")
    print(json.dumps({"times": times, "losses": losses,
                      "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def tessera(options, folder, steps, dtype, extra):
    metrics = os.path.join(folder, "metrics.jsonl")
    command = [options.tessera, "train", os.path.join(folder, "model.onnx"), "--data", os.path.join(folder, "data.npz"),
               "--steps", str(steps), "--optimizer", "adamw:weight_decay=0.01", "--lr", str(RATE), "--clip", "1",
               "--dtype", dtype, "--metrics", metrics, "--quiet", *extra]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    lines = [json.loads(line) for line in open(metrics)]
    times = [BATCH * SEQUENCE / line["tokens_per_s"] for line in lines]
    return {"times": times, "losses": [line["loss"] for line in lines],
            "peak": used.ru_maxrss * 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="of each round; the first warms up")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--engines", default="tessera,torch,torch compiled,jax")
    parser.add_argument("--folder", help="where the model is kept between runs")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, folder, steps, dtype = options.worker
        return worker(kind, folder, int(steps), dtype)
    folder = options.folder or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    if not os.path.exists(os.path.join(folder, "data.npz")):
        prepare(folder, 16)
    engines = options.engines.split(",")
    for dtype in options.dtype.split(","):
        found = {engine: [] for engine in engines}
        for _ in range(options.rounds):
            for engine in engines:
                if engine.startswith("tessera"):
                    result = tessera(options, folder, options.steps, dtype, engine.split()[1:])
                else:
                    done = subprocess.run([sys.executable, __file__, "--worker", engine, folder, str(options.steps), dtype],
                                          stdout=subprocess.PIPE, text=True)
                    if done.returncode:
                        print(f"{engine}: failed", file=sys.stderr)
                        continue
                    result = json.loads(done.stdout.splitlines()[-1])
                found[engine].append(result)
        print(f"{dtype}: {FLOPS / 1e9:.0f} GFLOP of matrix products in a step")
        peers = [statistics.median(t for r in results for t in r["times"][1:])
                 for engine, results in found.items() if results and not engine.startswith("tessera")]
        for engine, results in found.items():
            if not results:
                continue
            times = [t for r in results for t in r["times"][1:]]
            median = statistics.median(times)
            ratio = f"{min(peers) / median:5.2f}x the fastest peer" if peers else ""
            print(f"  {engine:28s} {median * 1e3:8.0f} ms  {FLOPS / median / 1e9:6.0f} GFLOP/s  {ratio}  "
                  f"peak {max(r['peak'] for r in results) / 2**30:.2f} GiB  losses "
                  + " ".join(f"{x:.5f}" for x in results[0]["losses"]))


if __name__ == "__main__":
    main()
