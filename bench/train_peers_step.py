"""What all engines of train_peers.py share: the step that they time, its weights and data, and how a worker reports.

A worker is a process of one engine: `train_peers_{torch,jax}.py KIND FOLDER STEPS DTYPE RESULT`. FOLDER holds weights.npz
(Hugging Face's names) and data.npz (input_ids and labels, one slice a step). It writes RESULT, a JSON object: `times`
(seconds) and `losses` of its steps, and `shared`, the bytes of files in its memory, which ranks have in common.
"""
import json
import os
import time

LAYERS, HIDDEN, HEADS, VOCABULARY = 12, 768, 12, 50257
BATCH, SEQUENCE, RATE, DECAY, CLIP = 2, 256, 1e-4, 0.01, 1.0
CORES = 2
# Forward and backward of every product with a weight, and of attention's two products with each other's results.
FLOPS = (6 * BATCH * SEQUENCE * (LAYERS * 12 * HIDDEN**2 + VOCABULARY * HIDDEN) +
         12 * LAYERS * BATCH * SEQUENCE**2 * HIDDEN)


def load(folder, name):
    """Reads each array when it is asked for."""
    import numpy
    return numpy.load(os.path.join(folder, name + ".npz"))


def report(path, step, folder, steps):
    """Times step(ids, labels), which returns the loss when all is done."""
    data = load(folder, "data")
    ids, labels = data["input_ids"], data["labels"]
    times, losses = [], []
    for i in range(steps):
        start = time.perf_counter()
        losses.append(float(step(ids[i], labels[i])))
        times.append(time.perf_counter() - start)
    with open("/proc/self/status") as status:
        shared = next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssFile"))
    with open(path, "w") as file:
        json.dump({"times": times, "losses": losses, "shared": shared}, file)
