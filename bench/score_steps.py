"""Time and memory of a case's step, simulated: with two small numbers of layers and of microbatches, from which others
follow because layers and microbatches are alike; and with closed forms around the stages of a pipeline."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import subprocess

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


class Simulator:
    """Runs `tessera simulate`, once for each configuration, and keeps answers in a folder."""

    def __init__(self, tessera: str, machine: dict | None, folder: pathlib.Path):
        self.tessera, self.override, self.folder = tessera, machine, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.machines: dict[tuple, dict] = {}
        self.runs = 0

    def machine(self, case: Case) -> dict:
        """The file of the case's machine, with the links of its cluster."""
        key = (case.machine, case.gigabits, case.host)
        if key not in self.machines:
            machine = json.loads(json.dumps(self.override or json.loads((SHARE / f"{case.machine}.json").read_text())))
            if case.host and machine.get("links"):
                machine["links"][0]["size"] = case.host
            if case.gigabits and len(machine.get("links", [])) > 1:
                machine["links"][1]["bandwidth"] *= case.gigabits / NOMINAL[case.machine]
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
                   case.recompute, "--micro-batches", str(micro_batches), "--clip", "1", "--json"]
        machine = json.dumps(self.machine(case), sort_keys=True)
        return self._answer(model, machine, options)

    def _answer(self, model: str, machine: str, options: list[str]) -> tuple[float, float, float]:
        key = hashlib.sha256("\n".join([model, machine, *options]).encode()).hexdigest()[:24]
        kept = self.folder / f"{key}.json"
        if not kept.exists():
            for name, text in (("model.onnxtxt", model), ("machine.json", machine)):
                (self.folder / name).write_text(text)
            command = [self.tessera, "simulate", str(self.folder / "model.onnxtxt"), "--cluster",
                       str(self.folder / "machine.json"), *options]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.runs += 1
            if done.returncode:
                answer = {"error": done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "no message"}
            else:
                said = json.loads(done.stdout)
                answer = {"seconds": said["predicted"]["step_ms"] / 1e3, "bytes": said["peak_bytes"],
                          "computing": said["predicted"]["compute_ms"] / 1e3}
            kept.write_text(json.dumps(answer))
        answer = json.loads(kept.read_text())
        if "error" in answer:
            raise LeftOut(f"simulate says: {answer['error']}")
        return answer["seconds"], answer["bytes"], answer["computing"]


class Extended:
    """What simulate says of a step, by layers and microbatches: bilinear in them."""

    def __init__(self, simulator: Simulator, case: Case):
        # The program of fewer than four microbatches is another, without loops.
        count = case.micro_batches
        self.few = (count,) if count <= 4 and case.pp == 1 else (4, 5)
        self.points = {(layers, m): simulator.run(case, layers, m, case.per_rank) for layers in LAYERS for m in self.few}

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


def _backward_shares(model: Model) -> tuple[float, float]:
    """Of a layer's time: its forward pass, and what its weights' gradients take."""
    products = 2 * model.layer_parameters
    attention = 4 * model.heads * model.width * model.sequence / 2
    total = 3 * products + 3 * attention
    return (products + attention) / total, products / total


def send_seconds(case: Case, machine: dict) -> float:
    """Of a microbatch's activations from a stage to the next. Ranks of a host send at the same time."""
    model = case.model
    size = case.per_rank * model.sequence * model.hidden * 2 / (case.tp if case.sequence else 1)
    inner = machine["links"][0]
    if case.replicas * case.tp * case.pp <= inner["size"] or len(machine["links"]) == 1:
        return inner["alpha"] + size / inner["bandwidth"]
    outer = machine["links"][1]
    return outer["alpha"] + size * min(inner["size"], case.devices) / outer["bandwidth"]


def pipeline_seconds(case: Case, step: Extended, machine: dict) -> float:
    """Closed forms of the schedules, around simulated stages."""
    m, stages = case.micro_batches, stages_of(case)

    def of_microbatch(layers: float) -> float:
        return step.at(0, layers, 1) - step.at(0, layers, 0)

    ends = of_microbatch(0)
    layer = of_microbatch(1) - ends
    times = [layer * n for n in stages]
    if case.schedule == "redis":
        slowest = max((layer * case.model.layers + ends) / case.pp, ends)
        times = [slowest] * case.pp
    else:
        times[-1] += ends
    longest, send = max(times), send_seconds(case, machine)
    once = step.at(0, max(stages), 0)  # gradients' sums and the update
    forward, weights = _backward_shares(case.model)
    if case.schedule == "interleaved":
        return m * (longest + 2 * send * case.chunks) + (sum(times) - longest) / case.chunks + 2 * (case.pp - 1) * send + once
    if case.schedule == "zb1p":
        return m * longest + (case.pp - 1) * longest * max(0.0, 1 - 2 * weights) + once
    if case.schedule == "zb2p":
        return m * longest + 2 * (case.pp - 1) * send + once
    return m * longest + sum(times) - longest + 2 * (m + case.pp - 1) * send + once


def held_per_layer(case: Case) -> float:
    """Bytes that a microbatch in flight holds for each layer (arXiv 2205.05198; attention's scores are not held)."""
    model = case.model
    token = case.per_rank * model.sequence * model.hidden
    if case.recompute == "full":
        return 2 * token / (case.tp if case.sequence else 1)
    return token * (34 / case.tp if case.sequence or case.tp == 1 else 10 + 24 / case.tp)


def predict(case: Case, simulator: Simulator) -> Prediction:
    """Throws LeftOut."""
    step, machine = Extended(simulator, case), simulator.machine(case)
    if case.pp == 1:
        layers, seconds = case.model.layers, step.at(0, case.model.layers, case.micro_batches)
        memory = step.at(1, layers, min(case.micro_batches, step.few[-1]))
    else:
        seconds = pipeline_seconds(case, step, machine)
        layers = stages_of(case)[0]
        in_flight = min(case.pp * (2 if case.schedule == "zb2p" else 1), case.micro_batches) - 1
        # One stage has the embedding, another the head: a rank has half of what does not grow with the layers.
        of_layers = step.at(1, layers, step.few[-1]) - step.at(1, 0, step.few[-1])
        memory = of_layers + step.at(1, 0, step.few[-1]) / 2 + in_flight * layers * held_per_layer(case)
    return Prediction(seconds, memory, memory <= machine.get("memory", float("inf")), case.pp > 1)
