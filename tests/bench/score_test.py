#!/usr/bin/env python3
"""Tests of bench/score_tables.py: score_test.py [PATH of tessera]. With a path, one row is simulated, too."""

import contextlib
import dataclasses
import io
import json
import pathlib
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
import score_steps  # noqa: E402
import score_tables  # noqa: E402
from score_models import Model  # noqa: E402
from score_rows import LeftOut, case_of  # noqa: E402

TESSERA = None
ROW = {"id": "a", "src": "s", "set": "g", "system": "H100 SXM", "gpus": "8", "model": "LLAMA-1B", "layers": "4",
       "hidden": "256", "ffn": "512", "heads": "4", "kv": "4", "vocab": "1000", "seq": "128", "gbs": "64", "mbs": "1",
       "shard": "FSDP8", "tp": "1", "pp": "1", "precision": "bf16", "step_s": "0.5"}


def read(rows: list[dict], columns: list[str]) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.tsv"
        lines = ["\t".join(columns)] + ["\t".join(row.get(name, "") for name in columns) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return score_tables.read_rows(str(path))


def case(**changes: str):
    return case_of(read([ROW | changes], list(ROW | changes))[0])


class Linear(score_steps.Simulator):
    """A step takes 1 s, 0.1 s for each layer, and for each microbatch 0.02 s and 0.01 s for each layer; half of this
    is computation."""

    def run(self, case, layers, micro_batches, per_rank):
        seconds = 1 + 0.1 * layers + micro_batches * (0.02 + 0.01 * layers)
        return seconds, 1e9 * layers, seconds / 2


class Rows(unittest.TestCase):
    def test_columns_come_in_any_order_and_some_are_missing(self):
        straight = read([ROW], list(ROW))[0]
        self.assertEqual(straight, read([ROW], list(ROW)[::-1])[0])
        self.assertEqual(straight["note"], "")
        with_others = read([ROW | {"color": "red"}], ["color", *ROW])[0]
        self.assertEqual(straight, with_others)
        nameless = read([{**ROW, "id": ""}], [name for name in ROW if name != "id"])[0]
        self.assertEqual(nameless["id"], "line 2")

    def test_a_measurement_that_is_repeated_counts_once(self):
        self.assertEqual(len(read([ROW, ROW | {"id": "b", "note": "again"}, ROW | {"id": "c", "gbs": "8"}], list(ROW))), 2)

    def test_what_is_needed_and_absent_is_named(self):
        for changes, reason in [({"system": "Abacus"}, "no machine file for Abacus"), ({"gpus": ""}, "no gpus"),
                                ({"gpus": "many"}, "gpus is 'many'"), ({"tp": "3"}, "tp 3 x pp 1 does not divide 8"),
                                ({"dp": "3"}, "dp 3 x tp 1 x pp 1 is not 8"), ({"heads": "3"}, "3 heads do not divide"),
                                ({"model": "Mixtral-8x7B"}, "a mixture of experts"), ({"hidden": ""}, "no sizes"),
                                ({"precision": "fp8"}, "8 or 4 bits"), ({"step_s": ""}, "no measurement"),
                                ({"pp": "8", "schedule": "waltz"}, "schedule waltz"), ({"gbs": "4"}, "gbs 4 is less"),
                                ({"shard": "by lot"}, "shard 'by lot'"), ({"cp": "2"}, "context parallelism")]:
            with self.subTest(changes), self.assertRaisesRegex(LeftOut, reason):
                case(**changes)

    def test_measurements_in_other_units_are_the_same(self):
        tokens = 64 * 128
        rate = tokens / 0.5 / 8
        self.assertAlmostEqual(case(step_s="", tok_s_gpu=f"{rate}").seconds, 0.5)
        flops = case().flops / 0.5
        self.assertAlmostEqual(case(step_s="", tflops_gpu=f"{flops / 1e12:.9g}").seconds, 0.5, places=6)
        self.assertAlmostEqual(case(step_s="", mfu_pct=f"{100 * flops / 989.4e12:.9g}").seconds, 0.5, places=6)

    def test_a_row_that_does_not_fit_in_memory_needs_no_time(self):
        self.assertEqual(case(step_s="", mem_gb="OOM").memory, float("inf"))

    def test_a_system_that_grants_less_power_is_slower(self):
        self.assertAlmostEqual(case(system="H100-96GB HBM2e 500W").power, 5 / 7)
        self.assertLess(case(system="H100-96GB HBM2e 500W").bandwidth, 0.75)

    def test_a_system_says_what_memory_it_has(self):
        for system, bytes_ in [("H100-96GB HBM2e 500W", 96e9), ("16x(4) GH-96", 96e9), ("H100 SXM", 0),
                               ("A100-80G, 400Gbps", 80e9), ("2x v5e-256", 0)]:
            self.assertEqual(case(system=system).capacity, bytes_, system)

    def test_sources_say_what_their_memory_counts(self):
        self.assertEqual(case(mem_gb="14.9").memory, 14.9e9)
        self.assertEqual(case(mem_gb="14.9", src="arXiv 2411.05288 Table 5").memory, 14.9 * 2**30)
        for src, bytes_ in [("s", 4), ("arXiv 2401.10241 Table 4", 2), ("nanotron", 6), ("bigscience", 2)]:
            self.assertEqual(case(src=src).gradient_bytes, bytes_, src)


class Steps(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.simulator = Linear("", None, pathlib.Path(self.folder.name))

    def seconds(self, **changes):
        return score_steps.predict(case(**changes), self.simulator).seconds

    def test_layers_and_microbatches_follow_from_small_numbers_of_them(self):
        self.assertAlmostEqual(self.seconds(gpus="1", gbs="8", shard=""), 1 + 0.4 + 8 * 0.06)

    def test_sharded_states_hide_their_communication_but_for_a_layer(self):
        whole = 1 + 0.4 + 8 * 0.06
        self.assertAlmostEqual(self.seconds(), whole - whole / 2 * 3 / 4)

    def test_a_pipeline_fills_and_drains(self):
        # Stages of one layer; the last has what layers have not. One device of the next host and host is a message.
        self.simulator.machine(case(pp="4", gpus="4", gbs="8", shard=""))
        got = self.seconds(pp="4", gpus="4", gbs="8", shard="")
        longest, once = 0.03, 1 + 0.1 - 1 / 2
        self.assertAlmostEqual(got, 8 * longest + 3 * 0.01 + once, delta=1e-3)

    def test_ranks_add_up_activations_in_the_type_of_products(self):
        class Options(score_steps.Simulator):
            def _answer(self, model, machine, options):
                return options

        simulator = Options("", None, pathlib.Path(self.folder.name))
        for changes, narrow in [({"tp": "2"}, True), ({"tp": "2", "precision": "fp32"}, False), ({}, False)]:
            self.assertEqual("operands" in simulator.run(case(**changes), 1, 1, 1), narrow, changes)

    def test_rings_hide_what_they_hide_without_replicas(self):
        class Shorter(Linear):
            def run(self, case, layers, micro_batches, per_rank):
                seconds, memory, computing = super().run(case, layers, micro_batches, per_rank)
                return seconds * (0.75 if case.rings else 1), memory, computing

        self.simulator = Shorter("", None, pathlib.Path(self.folder.name))
        split = dict(gpus="16", gbs="64", tp="2", shard="FSDP8")
        plain = self.seconds(**split, note="vanilla TP")
        alone = 1 + 0.4 + 8 * 0.06
        self.assertAlmostEqual(plain - self.seconds(**split, note="async TP"), alone / 4)

    def test_redistributed_layers_are_whole(self):
        stages = score_steps.redistributed(case(pp="4", gpus="4", layers="12", shard=""), 2.5)
        self.assertEqual(sum(stages), 12)
        self.assertEqual((max(stages), stages[-1]), (4, 1))

    def test_attention_that_stores_scores_is_slower_and_slowest_where_heads_are_uneven(self):
        machine = self.simulator.machine(case(system="A100"))
        even, uneven = (score_steps.stored_rates(machine, width, False)["Attention"] for width in (152, 150))
        self.assertLess(even, machine["rates"]["Attention"])
        self.assertLess(uneven, even / 2)

    def test_memory_of_stages_is_that_of_the_paper(self):
        # arXiv 1910.02054, figure 1: 7.5e9 parameters on 64 devices, ZeRO-1: 31.4 GB.
        model_states = score_steps.states_of_stage(case(shard="ZeRO-1", gpus="64", src="bigscience"), 7.5e9)
        self.assertAlmostEqual(model_states / 1e9, 31.4, delta=0.05)
        fully = score_steps.states_of_stage(case(shard="FSDP64", gpus="64"), 7.5e9)
        self.assertAlmostEqual(fully / 1e9, 1.88, delta=0.01)

    def test_stages_hold_their_outputs_where_nobody_frees_them(self):
        staged = dict(pp="4", gpus="4", gbs="8", shard="")
        kept = case(src="bigscience", vocab="8", **staged)  # so few words that the first stage has the peak
        freed = dataclasses.replace(kept, keeps_outputs=False)
        # The first of four stages has four microbatches in flight.
        self.assertEqual(score_steps.pipeline_memory(kept) - score_steps.pipeline_memory(freed), 4 * 2 * 128 * 256)

    def test_gradients_in_16_bits_are_held_besides(self):
        one = case(gpus="1", gbs="8", shard="")
        without = score_steps.predict(one, self.simulator).memory
        both = dataclasses.replace(one, gradient_bytes=6, eager=True)
        more = score_steps.predict(both, self.simulator).memory - without
        self.assertEqual(more, 2 * one.model.parameters + 2 * 128 * 512 * 4)


class Scores(unittest.TestCase):
    def test_rank_correlation_and_regret(self):
        self.assertEqual(score_tables.kendall([(1, 1), (2, 2), (3, 3)]), 1)
        self.assertEqual(score_tables.kendall([(1, 3), (2, 2), (3, 1)]), -1)
        self.assertIsNone(score_tables.kendall([(1, 1), (1, 2)]))
        chosen = [score_tables.Scored({}, case(step_s=measured), score_steps.Prediction(predicted, 0, True, False))
                  for predicted, measured in ((1, "1.1"), (2, "1"))]
        self.assertAlmostEqual(score_tables.group_summary(chosen)["regret"], 0.1)

    def test_rows_that_nobody_has_seen_end_nothing(self):
        strange = [ROW | {"id": "b", key: text} for key in ROW if key not in ("id", "src", "set")
                   for text in ("", "?", "-3", "1e400", "∞", "x" * 500)]
        rows = read([ROW] + strange, list(ROW))
        with tempfile.TemporaryDirectory() as folder:
            groups, left = score_tables.score(rows, Linear("", None, pathlib.Path(folder)), 2)
        self.assertIn("a", [scored.row["id"] for group in groups.values() for scored in group])
        self.assertEqual(sum(map(len, groups.values())) + sum(map(len, left.values())), len(rows))

    def test_rows_of_the_papers_are_understood(self):
        rows = score_tables.read_rows(str(BENCH / "score_papers.tsv"))
        self.assertTrue(rows)
        for row in rows:
            self.assertGreater(case_of(row).seconds, 0, row["id"])

    def test_parameters_are_those_of_the_models(self):
        model = Model(80, 8192, 28672, 64, 8, 128256, 8192)
        self.assertAlmostEqual(model.parameters / 70_553_706_496, 1, delta=1e-4)


class WholeProgram(unittest.TestCase):
    def test_scores_a_row_and_names_the_others(self):
        if not TESSERA:
            self.skipTest("no path of tessera")
        with tempfile.TemporaryDirectory() as folder:
            path, summary = pathlib.Path(folder) / "rows.tsv", pathlib.Path(folder) / "summary.json"
            rows = [ROW, ROW | {"id": "b", "system": "Abacus"}]
            path.write_text("\n".join("\t".join(row) for row in [list(ROW), *(row.values() for row in rows)]))
            sys.argv = ["score_tables.py", "--rows", str(path), "--tessera", TESSERA, "--json", str(summary), "--verbose"]
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(score_tables.main(), 0)
            self.assertIn("1 of 2 rows scored", printed.getvalue())
            self.assertIn("no machine file for Abacus: 1 (b)", printed.getvalue())
            self.assertEqual(next(iter(json.loads(summary.read_text()).values()))["timed"], 1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        TESSERA = sys.argv.pop(1)
    unittest.main()
