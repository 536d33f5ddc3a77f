"""Annotates models with onnx-ir as its users do, and compares what tessera makes of them with one device's answers.

    annotated_models.py BUILD/tessera MLP TINY GPT2 RESNET MOE    the models' folders

Then it lets tessera write annotations, and holds that onnx and onnx-ir load them and write them back unchanged, and that
what onnx-ir wrote is the same program.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import onnx
import onnx_ir as ir


def tessera(*arguments, code=0):
    """The standard output; stops if the exit code is another."""
    done = subprocess.run([TESSERA, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != code:
        sys.exit(f"tessera {' '.join(map(str, arguments))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def load(folder):
    # onnx-ir keeps the shapes that the file states, and a file may state none.
    return ir.from_proto(onnx.shape_inference.infer_shapes(onnx.load(folder / "model.onnx")))


def products(model):
    """Nodes that multiply by a weight, and which operand that is."""
    for node in model.graph:
        if node.op_type in ("MatMul", "Gemm") and node.inputs[1].is_initializer():
            yield node


def column(node, configuration, devices, stage=None):
    """The weight by columns, and so the result."""
    weight, result = node.inputs[1], node.outputs[0]
    transposed = node.op_type == "Gemm" and "transB" in node.attributes and node.attributes["transB"].as_int() == 1
    shard(node, weight, configuration, 0 if transposed else 1, devices, stage)
    shard(node, result, configuration, -1, devices, stage)


def row(node, configuration, devices, stage=None):
    """The weight by rows, and so the operand; the result is whole."""
    operand, weight = node.inputs[0], node.inputs[1]
    transposed = node.op_type == "Gemm" and "transB" in node.attributes and node.attributes["transB"].as_int() == 1
    shard(node, operand, configuration, -1, devices, stage)
    shard(node, weight, configuration, 1 if transposed else 0, devices, stage)


def shard(node, value, configuration, axis, devices, stage=None):
    node.shard(value, configuration=configuration, axis=axis, num_shards=len(devices), device_indices=devices,
               pipeline_stage=stage)


def pairs(model, configuration, devices):
    """Products by turns split by columns and by rows, as far as they lie one after the other."""
    for i, node in enumerate(products(model)):
        (column if i % 2 == 0 else row)(node, configuration, devices)


def batch(model, configuration, devices):
    """What is computed of the inputs, along its first dimension."""
    for node in model.graph:
        for value in node.inputs:
            if value is not None and value in model.graph.inputs:
                shard(node, value, configuration, 0, devices)
        if node.op_type in ("Conv", "LayerNormalization"):
            shard(node, node.outputs[0], configuration, 0, devices)


def stages(model, configuration, count):
    """Equal numbers of nodes, one part after the other."""
    nodes = list(model.graph)
    for i, node in enumerate(nodes):
        node.set_pipeline_stage(configuration, i * count // len(nodes))


def groups(model, configuration, _):
    """Over four devices: columns over two groups of two, given by a map from keys to groups."""
    for node in products(model):
        column(node, configuration, [-1, -2])
    members = (ir.IndexToDeviceGroupMapEntry(-1, (0, 1)), ir.IndexToDeviceGroupMapEntry(-2, (2, 3)))
    for node in model.graph:
        node.device_configurations = tuple(
            ir.NodeDeviceConfiguration(
                configuration=entry.configuration,
                sharding_specs=tuple(
                    ir.ShardingSpec(value=spec.value, device=spec.device, sharded_dims=spec.sharded_dims,
                                    index_to_device_group_map=members)
                    for spec in entry.sharding_specs),
                pipeline_stage=entry.pipeline_stage)
            for entry in node.device_configurations)


def mesh(model, configuration, _):
    """Over four devices: the result's rows and columns, in two calls whose devices are one list."""
    for node in products(model):
        result = node.outputs[0]
        node.shard(result, configuration=configuration, axis=0, num_shards=2, device_indices=[0, 1, 2, 3])
        node.shard(result, configuration=configuration, axis=len(result.shape) - 1, num_shards=2,
                   device_indices=[0, 1, 2, 3])


def staged_pairs(model, configuration, _):
    """Over four devices: two stages of two, in each of which products are split."""
    nodes = list(model.graph)
    for i, node in enumerate(nodes):
        stage = i * 2 // len(nodes)
        devices = [2 * stage, 2 * stage + 1]
        if node.op_type in ("MatMul", "Gemm") and node.inputs[1].is_initializer():
            column(node, configuration, devices, stage)
        else:
            node.set_pipeline_stage(configuration, stage)


def listed_nowhere(model, configuration, devices):
    """Without lists: all devices of the configuration, in order."""
    for node in products(model):
        node.shard(node.outputs[0], configuration=configuration, axis=-1, num_shards=len(devices))


def experts(model, configuration, devices):
    """The last products of the model are six experts', three for each; a device has as many experts as another."""
    for i, node in enumerate(list(products(model))[-18:]):
        device = i // 3 * len(devices) // 6
        for reader in (node, *node.outputs[0].consumers()):
            for value in reader.inputs:
                if value is not None and value.is_initializer():
                    shard(reader, value, configuration, 0, [device])


WAYS = {
    "pairs": (pairs, 2),
    "pairs-of-3": (pairs, 3),
    "batch": (batch, 2),
    "stages": (stages, 2),
    "three-stages": (stages, 3),
    "groups": (groups, 4),
    "mesh": (mesh, 4),
    "staged-pairs": (staged_pairs, 4),
    "unlisted": (listed_nowhere, 2),
}
WAYS_OF_EXPERTS = {"experts": (experts, 2), "experts-of-3": (experts, 3)}


def is_mixture(folder):
    return folder.name.startswith("moe")


def annotate(folder, way, path):
    model = load(folder)
    model.ir_version = 11
    mark, count = (WAYS | WAYS_OF_EXPERTS)[way]
    configuration = model.add_device_configuration(way, num_devices=count)
    devices = count if mark is stages else list(range(count))
    mark(model, configuration, devices)
    ir.save(model, path)
    return model


def run(folder, path, devices):
    tessera("check", path)
    plan = json.loads(tessera("shard", path, "--dry-run", "--json"))
    assert math.prod(plan["mesh"].values()) == devices, plan["mesh"]
    weights = [rank["parameter_bytes"] for rank in plan["ranks"]]
    print(f"({sum(weights) / plan['one_rank']['parameter_bytes']:.2f} of the weights,"
          f" {sum(entry['count'] for entry in plan['collectives'])} communications)", end=" ")
    inputs = folder / "inputs_0.npz"
    print(json.loads(tessera("verify", path, "--inputs", inputs, "--expected", folder / "outputs_0.npz",
                             "--json"))["pass"], end=" ")


def comes_back(folder, mesh_text, work):
    """What tessera annotates stays what it is in onnx and onnx-ir, and is the same program."""
    ours, theirs = work / "ours.onnx", work / "theirs.onnx"
    tessera("annotate", folder / "model.onnx", "--mesh", mesh_text, "-o", ours)
    proto = onnx.load(ours)
    onnx.checker.check_model(proto)
    ir.save(ir.load(ours), theirs)
    again = onnx.load(theirs)
    assert list(proto.configuration) == list(again.configuration)
    for a, b in zip(proto.graph.node, again.graph.node, strict=True):
        assert list(a.device_configurations) == list(b.device_configurations), a.name
    assert sum(len(node.device_configurations) for node in proto.graph.node) > 0
    plans = [json.loads(tessera("shard", *of, "--dry-run", "--json"))
             for of in ([folder / "model.onnx", "--mesh", mesh_text], [ours], [theirs])]
    for key in ("mesh", "collectives", "ranks"):
        assert plans[0][key] == plans[1][key] == plans[2][key], (key, [plan[key] for plan in plans])
    completed = work / "completed.onnx"
    tessera("infer", ours, "-o", completed)
    run(folder, completed, math.prod(plans[0]["mesh"].values()))


def main():
    global TESSERA
    TESSERA = sys.argv[1]
    folders = [pathlib.Path(folder) for folder in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as made:
        work = pathlib.Path(made)
        for folder in folders:
            print(f"{folder.name}:", end=" ")
            ways = WAYS | (WAYS_OF_EXPERTS if is_mixture(folder) else {})
            for way in ways:
                print(way, end=" ", flush=True)
                annotate(folder, way, work / "model.onnx")
                run(folder, work / "model.onnx", ways[way][1])
            for mesh_text in ("tp=2", "dp=2,tp=2", *(["ep=2,tp=2"] if is_mixture(folder) else [])):
                print(mesh_text, end=" ", flush=True)
                comes_back(folder, mesh_text, work)
            print()


if __name__ == "__main__":
    main()
