#!/usr/bin/env python3
"""A rank of pipeline_peers.py's PyTorch engines: torch.distributed.pipelining over Gloo.

    pipeline_peers_torch.py prepare FOLDER            makes what all engines read
    pipeline_peers_torch.py SCHEDULE FOLDER STEPS RESULT

See train_peers_step.py for FOLDER and RESULT. The head has a matrix of its own, since stages of torch.distributed.pipelining
share no parameters.
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

from train_peers_step import CLIP, DECAY, LAYERS, RATE, report
from train_peers_torch import gpt2, prepare

RANKS, PARTS, BATCH, SEQUENCE = 2, 8, 1, 128

# By schedule: its class, and for each stage its rank and its blocks. The head takes about as long as 5.4 blocks.
LOOP, V = ((0, 5), (1, 3), (0, 4), (1, 0)), ((0, 3), (1, 5), (1, 4), (0, 0))
SCHEDULES = {
    "gpipe": ("ScheduleGPipe", ((0, 9), (1, 3))),
    "1f1b": ("Schedule1F1B", ((0, 9), (1, 3))),
    "interleaved:2": ("ScheduleInterleaved1F1B", LOOP),
    "zb-interleaved:2": ("ScheduleInterleavedZeroBubble", LOOP),
    "zb-v": ("ScheduleZBVZeroBubble", V),
}


class Stage(nn.Module):
    """Some blocks of a GPT-2, with the embedding before the first ones and the head after the last ones."""

    def __init__(self, model, begin, end, is_first, is_last):
        super().__init__()
        self.wte, self.wpe = (model.wte, model.wpe) if is_first else (None, None)
        self.h = model.h[begin:end]
        self.ln_f, self.head = (model.ln_f, model.head) if is_last else (None, None)

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            x = block(x)
        return x if self.head is None else self.head(self.ln_f(x))


def stages_of(model, places, rank):
    """The rank's stages: (number, module)."""
    mine, begin = [], 0
    for number, (where, blocks) in enumerate(places):
        if where == rank:
            mine.append((number, Stage(model, begin, begin + blocks, number == 0, number == len(places) - 1)))
        begin += blocks
    assert begin == LAYERS
    return mine


def loss_of(logits, labels):
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def trained(parameters, run, ranks):
    """A step: `run` returns the loss, on the rank that has it, and leaves gradients."""
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=DECAY, fused=True)

    def step(ids, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = run(torch.from_numpy(ids), torch.from_numpy(labels))
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        if ranks > 1:
            together = torch.stack([norm.square(), loss])
            dist.all_reduce(together)
            norm, loss = together[0].sqrt(), together[1]
        nn.utils.clip_grads_with_norm_(parameters, CLIP, norm)
        optimizer.step()
        return loss

    return step


def one_rank(folder):
    model = gpt2(folder, tied=False)

    def run(ids, labels):
        total = torch.zeros(())
        for x, y in zip(ids.chunk(PARTS), labels.chunk(PARTS)):
            loss = loss_of(model(x), y) / PARTS
            loss.backward()
            total += loss.detach()
        return total

    return trained(list(model.parameters()), run, 1)


def pipeline(folder, name):
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method="file://" + os.environ["MEETING"], rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(minutes=10))
    kind, places = SCHEDULES[name]
    mine = stages_of(gpt2(folder, tied=False), places, rank)
    stages = [pipelining.PipelineStage(module, number, len(places), torch.device("cpu")) for number, module in mine]
    schedule_class = getattr(pipelining.schedules, kind)
    alone = issubclass(schedule_class, pipelining.schedules.PipelineScheduleSingle)
    schedule = schedule_class(stages[0] if alone else stages, PARTS, loss_fn=loss_of)
    has_last = any(number == len(places) - 1 for number, _ in mine)

    def run(ids, labels):
        losses = []
        inputs = (ids,) if any(number == 0 for number, _ in mine) else ()
        if has_last:
            schedule.step(*inputs, target=labels, losses=losses)
        else:
            schedule.step(*inputs)
        return torch.stack(losses).mean().detach() if losses else torch.zeros(())

    return trained([p for _, module in mine for p in module.parameters()], run, RANKS)


def main():
    if sys.argv[1] == "prepare":
        return prepare(sys.argv[2], BATCH, SEQUENCE, PARTS, tied=False)
    name, folder, steps, result = sys.argv[1:]
    torch.set_num_threads(1)
    report(result, one_rank(folder) if name == "one" else pipeline(folder, name), folder, int(steps))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
