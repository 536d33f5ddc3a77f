"""Time and memory of a case's step, simulated: with two small numbers of layers and of microbatches, from which others
follow because layers and microbatches are alike; and with closed forms around the stages of a pipeline."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess
import threading

from score_models import Model, text_of
from score_rows import Case, LeftOut

LAYERS = (1, 2)
NOMINAL = {"a100-80gb": 1600, "h100-sxm": 3200}  # Gbit/s between hosts that the machine's file describes
SHARE = pathlib.Path(__file__).resolve().parent.parent / "share" / "tessera" / "machines"


@dataclasses.dataclass
class Prediction:
    seconds: float
    memory: float
    fits: bool
    closed: bool  # with closed forms for a pipeline


# Bytes that each score of 16 bits is read and written in the forward and the backward pass where attention stores
# scores: forward, a product writes it, the softmax reads and writes it, so does the dropout, with a mask of a byte, and
# a product reads it; backward, three products read it and one writes its gradient, the dropout reads a mask, reads and
# writes, and the softmax reads two and writes one (the operators of arXiv 2205.05198, figure 2).
STORED_BYTES = 13, 19
# Bytes held of each score: the softmax' results, the mask, and the dropout's results (arXiv 2205.05198, section 4.1).
HELD_BYTES = 5
# FLOP/s of products whose extents are no multiples of 8, of all machines: those of the A100 without tensor cores
# (NVIDIA A100 datasheet: 19.5e12 in float32; NVIDIA, "Matrix multiplication background user's guide", on alignment).
UNALIGNED = 19.5e12
# FLOP/s of the first FlashAttention on an A100: the middle of 25 to 40 % of the peak (arXiv 2307.08691, abstract).
FLASH1 = 0.325 * 312e12


def stored_rates(machine: dict, width: int, again: bool) -> dict:
    """Rates of attention that stores its scores, as shares of the machine's products. Tessera counts 2 and 5 products
    of half of the scores, those that a causal mask shows; such attention computes 2 and 4 of all. `again`: the backward
    pass computes the scores again (selective recomputation of arXiv 2205.05198)."""
    product = machine["products"]["bfloat16"]
    rate = product["flops"] * width / (width + product["half"][2]) if width % 8 == 0 else UNALIGNED
    memory = machine["bandwidths"][-1]["bytes_per_second"]
    forward, backward = (2 * products * width / rate + size / memory for products, size in zip((2, 4), STORED_BYTES))
    backward += forward if again else 0
    return {"Attention": 2 * width / forward / product["flops"],
            "AttentionGradient": 5 * width / backward / product["flops"]}


class Simulator:
    """Runs `tessera simulate`, once for each configuration, and keeps answers in a folder."""

    def __init__(self, tessera: str, machine: dict | None, folder: pathlib.Path):
        self.tessera, self.override, self.folder = tessera, machine, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.machines: dict[tuple, dict] = {}
        self.runs = 0
        self.lock, self.keys = threading.Lock(), {}

    def machine(self, case: Case) -> dict:
        """The file of the case's machine, with the links of its cluster."""
        stored, again = case.attention == "stored", case.recompute == "selective"
        width = case.model.width if stored else 0
        key = (case.machine, case.gigabits, case.host, case.power, case.bandwidth, case.attention, width, again)
        if key not in self.machines:
            machine = json.loads((SHARE / f"{case.machine}.json").read_text())
            if self.override and self.override.get("name") == machine["name"]:
                machine = json.loads(json.dumps(self.override))
            if case.host and machine.get("links"):
                machine["links"][0]["size"] = case.host
            if case.gigabits and len(machine.get("links", [])) > 1:
                machine["links"][1]["bandwidth"] *= case.gigabits / NOMINAL[case.machine]
            for product in machine["products"].values():
                product["flops"] *= case.power
            for level in machine["bandwidths"]:
                level["bytes_per_second"] *= case.bandwidth
            if stored:
                machine["rates"] = stored_rates(machine, width, again)
            elif case.attention == "flash1":
                rate = FLASH1 / machine["products"]["bfloat16"]["flops"]
                machine["rates"] = {"Attention": rate, "AttentionGradient": rate}
            self.machines[key] = machine
        return self.machines[key]

    def run(self, case: Case, layers: int, micro_batches: int, per_rank: int) -> tuple[float, float, float]:
        """Seconds of a step, bytes at the peak, and seconds of computation."""
        model = text_of(dataclasses.replace(case.model, layers=layers))
        outer = case.replicas // case.sharded
        axes = [("dp", outer)] if outer > 1 else []
        axes += [("fsdp" if case.preset == "fsdp" else "dp", case.sharded)] if case.sharded > 1 or not axes else []
        axes += [("tp", case.tp)] if case.tp > 1 else []
        presets = ["dp"] if outer > 1 else []
        presets += [case.preset] if case.sharded > 1 else []
        presets += (["megatron"] + ["sequence"] * case.sequence) if case.tp > 1 else []
        batch = micro_batches * per_rank * case.replicas
        options = ["--train", "--mesh", ",".join(f"{name}={size}" for name, size in axes),
                   "--preset", "+".join(presets) or "none", "--shapes",
                   f"batch={batch},sequence={case.model.sequence}", "--dtype", case.dtype, "--recompute",
                   case.recompute, "--micro-batches", str(micro_batches), "--clip", "1",
                   "--overlap", "auto" if case.rings else "off", "--json"]
        if case.tp > 1 and case.dtype != "float32":  # all these systems reduce activations in the type of products
            options += ["--partial-sums", "operands"]
        machine = json.dumps(self.machine(case), sort_keys=True)
        return self._answer(model, machine, options)

    def _answer(self, model: str, machine: str, options: list[str]) -> tuple[float, float, float]:
        key = hashlib.sha256("\n".join([model, machine, *options]).encode()).hexdigest()[:24]
        kept = self.folder / f"{key}.json"
        with self.lock:
            one_at_a_time = self.keys.setdefault(key, threading.Lock())
        with one_at_a_time:
            if not kept.exists():
                self._simulate(kept, model, machine, options)
        answer = json.loads(kept.read_text())
        if "error" in answer:
            raise LeftOut(f"simulate says: {answer['error']}")
        return answer["seconds"], answer["bytes"], answer["computing"]

    def _simulate(self, kept: pathlib.Path, model: str, machine: str, options: list[str]) -> None:
        inputs = kept.with_suffix(".onnxtxt"), kept.with_suffix(".machine")
        for path, text in zip(inputs, (model, machine)):
            path.write_text(text)
        command = [self.tessera, "simulate", str(inputs[0]), "--cluster", str(inputs[1]), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for path in inputs:
            path.unlink()
        with self.lock:
            self.runs += 1
        if done.returncode < 0:
            raise LeftOut(f"simulate was killed by signal {-done.returncode}")
        if done.returncode:
            said = done.stderr.strip().splitlines()
            answer = {"error": said[-1].replace(str(inputs[0]), "the model")[:200] if said else "no message"}
        else:
            said = json.loads(done.stdout)
            answer = {"seconds": said["predicted"]["step_ms"] / 1e3, "bytes": said["peak_bytes"],
                      "computing": said["predicted"]["compute_ms"] / 1e3}
        kept.write_text(json.dumps(answer))


class Extended:
    """What simulate says of a step, by layers and microbatches: bilinear in them."""

    def __init__(self, simulator: Simulator, case: Case):
        # The program of fewer than four microbatches is another, without loops.
        count = case.micro_batches
        self.few = (count,) if count <= 4 and case.pp == 1 else (4, 5)
        self.points = {(n, m): simulator.run(case, n, m, case.per_rank) for n in LAYERS for m in self.few}

    def _along(self, low: float, high: float, first: int, second: int, at: float) -> float:
        return low + (high - low) * (at - first) / (second - first)

    def at(self, quantity: int, layers: float, micro_batches: float) -> float:
        """Quantity 0: seconds; 1: bytes; 2: seconds of computation."""
        values = [self._along(*(self.points[n, m][quantity] for n in LAYERS), *LAYERS, layers) for m in self.few]
        return values[0] if len(values) == 1 else self._along(*values, *self.few, micro_batches)


def stages_of(case: Case) -> list[int]:
    """Layers of each stage: as even as possible; the first and the last, which have the embedding and the head, have
    the fewer."""
    least, rest = divmod(case.model.layers, case.pp)
    stages = [least] * case.pp
    if case.model.layers % case.pp == case.pp - 2 and case.pp > 2:
        return [least] + [least + 1] * (case.pp - 2) + [least]
    middle = (case.pp - rest) // 2
    for i in range(middle, middle + rest):
        stages[i] += 1
    return stages


def redistributed(case: Case, ends: float) -> list[int]:
    """Layers of each stage, so that the slowest is as fast as possible. `ends`: what the last stage has besides, in
    layers."""
    def stages(last: int) -> list[int]:
        least, rest = divmod(case.model.layers - last, case.pp - 1)
        return [least + 1] * rest + [least] * (case.pp - 1 - rest) + [last]

    def slowest(layers: list[int]) -> tuple[float, int]:
        return max(layers[0], layers[-1] + ends), -layers[-1]

    return min((stages(last) for last in range(case.model.layers // case.pp + 1)), key=slowest)


def weights_share(model: Model) -> float:
    """Of a layer's time: what its weights' gradients take."""
    products = 2 * model.layer_parameters
    attention = 4 * model.heads * model.width * model.sequence / 2
    return products / (3 * products + 3 * attention)


def send_seconds(case: Case, machine: dict) -> float:
    """Of a microbatch's activations from a stage to the next. Ranks of a host send at the same time, each its part of
    what the ranks of tensor parallelism hold in common; these then gather it (arXiv 2104.04473, section 4.1)."""
    model = case.model
    whole = case.per_rank * model.sequence * model.hidden * 2
    inner = machine["links"][0]
    gather = 0 if case.sequence else whole * (case.tp - 1) / case.tp / inner["bandwidth"]
    if case.replicas * case.tp * case.pp <= inner["size"] or len(machine["links"]) == 1:
        return inner["alpha"] + whole / case.tp / inner["bandwidth"] + gather
    outer = machine["links"][1]
    return outer["alpha"] + whole / case.tp * min(inner["size"], case.devices) / outer["bandwidth"] + gather


def hidden_seconds(case: Case, communication: float, computing: float) -> float:
    """Of communication over data parallelism, behind so many seconds of computation; closed forms. Fully sharded states
    are gathered and reduced beside the neighbouring layers, all but the first and the last. Gradients are reduced
    beside the backward pass of the last microbatch, two thirds of it; ZeRO-1 then gathers, which nothing hides."""
    if not case.overlap or communication <= 0:
        return 0.0
    if case.preset == "fsdp":
        return min(communication * (1 - 1 / case.model.layers), computing)
    return min(communication / (2 if case.preset == "zero1" else 1), computing * 2 / 3)


def step_seconds(case: Case, step: Extended, simulator: Simulator) -> float:
    """Of a step without stages."""
    layers, count = case.model.layers, case.micro_batches
    total, by_rings = step.at(0, layers, count), hidden_by_rings(case, simulator)
    if not case.overlap or case.replicas == 1:
        return total - by_rings
    alone = step.at(2, layers, count)
    if case.tp > 1:  # what hides tensor parallelism is rings alone
        alone = without_replicas(case, simulator).at(0, layers, count)
    computing = alone if case.preset == "fsdp" else alone / count
    return total - by_rings - hidden_seconds(case, total - alone, computing)


def without_replicas(case: Case, simulator: Simulator, rings: bool = False) -> Extended:
    return Extended(simulator, dataclasses.replace(case, replicas=1, sharded=1, preset="dp", rings=rings))


def hidden_by_rings(case: Case, simulator: Simulator) -> float:
    """Seconds by which Tessera's own rings shorten the step of one replica."""
    if not case.rings:
        return 0.0
    plain, ringed = (without_replicas(case, simulator, rings).at(0, case.model.layers, case.micro_batches)
                     for rings in (False, True))
    return max(0.0, plain - ringed)


def pipeline_seconds(case: Case, step: Extended, simulator: Simulator) -> float:
    """Closed forms of the schedules, around simulated stages. Replicas communicate once in a step: Tessera's own step
    gathers what the embedding's gradient needs for each microbatch."""
    m, stages, machine = case.micro_batches, stages_of(case), simulator.machine(case)
    alone = without_replicas(case, simulator) if case.replicas > 1 else step

    def of_microbatch(layers: float) -> float:
        return alone.at(0, layers, 1) - alone.at(0, layers, 0)

    def of_step(of: Extended) -> float:  # a stage has the embedding or the head
        return of.at(0, max(stages), 0) - of.at(0, 0, 0) / 2

    ends = of_microbatch(0)
    layer = of_microbatch(1) - ends
    times = [layer * n for n in stages]
    if case.schedule == "redis":
        stages = redistributed(case, ends / layer)
        times = [layer * n for n in stages]
    times[-1] += ends
    longest, send = max(times), send_seconds(case, machine)
    once = of_step(step)
    once -= hidden_seconds(case, once - of_step(alone), longest)
    weights = weights_share(case.model)
    if case.schedule == "interleaved":
        fills = (sum(times) - longest) / case.chunks + 2 * (case.pp - 1) * send
        return m * (longest + 2 * send * case.chunks) + fills + once
    if case.schedule == "zb1p":
        return m * longest + (case.pp - 1) * longest * max(0.0, 1 - 2 * weights) + once
    if case.schedule in ("zb2p", "zbv"):
        return m * longest + 2 * (case.pp - 1) * send + once
    return m * longest + sum(times) - longest + 2 * (m + case.pp - 1) * send + once


def held_per_layer(case: Case) -> float:
    """Bytes that a microbatch in flight holds for each layer (arXiv 2205.05198, section 4)."""
    model = case.model
    token = case.per_rank * model.sequence * model.hidden
    if case.recompute == "full":
        return 2 * token / (case.tp if case.sequence else 1)
    if model.gpt:
        whole, split = 10 * model.hidden, 24 * model.hidden
    else:  # without dropouts' masks; two norms, their inputs, and what products read
        whole = 8 * model.hidden
        split = 2 * model.width * (2 * model.heads + 2 * model.kv) + (8 if case.eager else 6) * model.ffn
    scores = scores_held(case) if case.recompute == "none" else 0
    tokens = case.per_rank * model.sequence
    return tokens * (whole / (case.tp if case.sequence else 1) + split / case.tp) + scores


def scores_held(case: Case) -> float:
    """Bytes for a microbatch and layer: 0 where attention does not store scores."""
    model = case.model
    return (case.attention == "stored") * HELD_BYTES * case.per_rank * model.heads * model.sequence**2 / case.tp


def gradients_besides(case: Case) -> float:
    """Bytes of gradients in 16 bits besides those that accumulate in 32, which Tessera's own step has."""
    return max(0, case.gradient_bytes - 4) * case.model.parameters / case.tp


def states_of_stage(case: Case, parameters: float) -> float:
    """Bytes of weights in 16 bits, gradients, and of master weights and two moments, in 32 bits, which ZeRO-1 splits
    (arXiv 1910.02054, section 3.1). Fully sharded states have the weights of two layers gathered."""
    if case.preset == "fsdp":
        return 16 * parameters / case.sharded + 4 * case.model.layer_parameters / case.tp
    return parameters * (2 + case.gradient_bytes + 12 / (case.sharded if case.preset == "zero1" else 1))


def pipeline_memory(case: Case) -> float:
    """Of the stage that needs the most; closed forms. A stage has as many microbatches in flight as there are stages
    from it to the last, which has the logits in 16 and 32 bits, and their gradient in 32. Megatron-LM frees a stage's
    outputs once they are sent (arXiv 2205.05198, appendix); DeepSpeed's engine keeps them as it keeps inputs."""
    model, stages = case.model, stages_of(case)
    chunks = 1 + (case.pp - 1) / (case.pp * case.chunks) if case.schedule == "interleaved" else 1
    live = 0.0
    if case.recompute == "full":  # a layer that is computed again
        live = held_per_layer(dataclasses.replace(case, recompute="none"))
    most = 0.0
    for i, layers in enumerate(stages):
        in_flight = min((case.pp if case.schedule == "zb2p" else 0) + case.pp - i, case.micro_batches) * chunks
        ends = model.vocabulary * model.hidden if i in (0, case.pp - 1) else 0
        states = states_of_stage(case, (layers * model.layer_parameters + ends) / case.tp)
        logits = 10 * case.per_rank * model.sequence * model.vocabulary / case.tp if i == case.pp - 1 else 0
        held = layers * held_per_layer(case)
        if case.keeps_outputs and i < case.pp - 1:
            held += 2 * case.per_rank * model.sequence * model.hidden
        most = max(most, states + in_flight * held + live + logits)
    return most


def predict(case: Case, simulator: Simulator) -> Prediction:
    """Throws LeftOut."""
    step, machine = Extended(simulator, dataclasses.replace(case, rings=False)), simulator.machine(case)
    if case.pp == 1:
        layers, seconds = case.model.layers, step_seconds(case, step, simulator)
        memory = step.at(1, layers, min(case.micro_batches, step.few[-1]))
        held = layers if case.recompute == "none" else 1
        memory += scores_held(case) * held + gradients_besides(case)
        if case.eager and not case.model.gpt:
            memory += 2 * case.per_rank * case.model.sequence * case.model.ffn / case.tp * held
    else:
        seconds, memory = pipeline_seconds(case, step, simulator), pipeline_memory(case)
    capacity = case.capacity or machine.get("memory", float("inf"))
    return Prediction(seconds, memory, memory <= capacity, case.pp > 1)
