"""Models of 4-bit weights, as ONNX Runtime's quantizer makes them of models in float32."""
import logging

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

BLOCK = 32


def four_bits(source, target, accuracy=None):
    """Writes to `target` the model `source` with its weights in blocks of 32 rows, symmetric. The quantizer takes up
    products (MatMul) by constants only, so that others become such first: Gemm with a bias, and tied embeddings that
    are turned at each run. `accuracy` is the operator's accuracy_level: 4 lets ONNX Runtime round activations to 8
    bits."""
    logging.disable(logging.CRITICAL)
    model = onnx.load(source)
    spell_products(model.graph)
    quantizer = MatMulNBitsQuantizer(model, bits=4, block_size=BLOCK, is_symmetric=True, accuracy_level=accuracy)
    quantizer.process()
    quantizer.model.save_model_to_file(target)


def spell_products(graph):
    constants = {tensor.name: tensor for tensor in graph.initializer}
    made = {}
    nodes = []
    for node in graph.node:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "Transpose" and node.input[0] in constants and attributes.get("perm") == [1, 0]:
            made[node.output[0]] = turned(constants[node.input[0]], node.output[0])
            continue
        weighted = node.op_type == "Gemm" and node.input[1] in constants and not attributes.get("transA")
        if not weighted or attributes.get("alpha", 1) != 1 or attributes.get("beta", 1) != 1:
            nodes.append(node)
            continue
        weight = node.input[1]
        if attributes.get("transB"):
            weight += ".turned"
            made[weight] = turned(constants[node.input[1]], weight)
        product = node.output[0] + ".product" if len(node.input) > 2 else node.output[0]
        nodes.append(helper.make_node("MatMul", [node.input[0], weight], [product], name=node.name + ".product"))
        if len(node.input) > 2:
            nodes.append(helper.make_node("Add", [product, node.input[2]], node.output, name=node.name))
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(made.values())
    used = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def turned(tensor, name):
    return numpy_helper.from_array(np.ascontiguousarray(numpy_helper.to_array(tensor).T), name)
