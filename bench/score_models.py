"""Transformers of any size in ONNX's text syntax, without initial values: the models of published measurements."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Model:
    """Sizes of a decoder. `gpt`: layer normalization, biases, GELU, learned positions; otherwise as in Llama: RMS
    normalization, rotary positions, gated feed-forward layers."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv: int
    vocabulary: int
    sequence: int
    gpt: bool = False
    tied: bool = False
    head_size: int = 0

    @property
    def width(self) -> int:
        """The width of a head."""
        return self.head_size or self.hidden // self.heads

    @property
    def layer_parameters(self) -> int:
        attention = 2 * self.hidden * self.width * (self.heads + self.kv)
        return attention + (2 if self.gpt else 3) * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """The elements of all matrices; the embedding and the head count once if they are tied."""
        return self.layers * self.layer_parameters + (1 if self.tied else 2) * self.vocabulary * self.hidden

    @property
    def flops_per_token(self) -> float:
        """FLOPs of the forward and backward pass. Attention counts all pairs, causal or not, as most do."""
        products = self.layers * self.layer_parameters + self.vocabulary * self.hidden
        return 6 * products + 12 * self.layers * self.heads * self.width * self.sequence


class _Text:
    """Nodes and initializers of a model."""

    def __init__(self, model: Model):
        self.model, self.nodes, self.weights = model, [], []

    def weight(self, name: str, *extents: int) -> str:
        self.weights.append(f'float[{", ".join(map(str, extents))}] "{name}"')
        return name

    def node(self, result: str, call: str, *inputs: str) -> str:
        self.nodes.append(f'  "{result}" = {call} ({", ".join(chr(34) + name + chr(34) for name in inputs)})')
        return result

    def linear(self, result: str, x: str, inputs: int, outputs: int) -> str:
        weight = self.weight(result + ".weight", inputs, outputs)
        if not self.model.gpt:
            return self.node(result, "MatMul", x, weight)
        product = self.node(result + ".product", "MatMul", x, weight)
        return self.node(result, "Add", product, self.weight(result + ".bias", outputs))

    def norm(self, result: str, x: str) -> str:
        weight = self.weight(result + ".weight", self.model.hidden)
        if not self.model.gpt:
            return self.node(result, "RMSNormalization <axis = -1, epsilon = 1e-5>", x, weight)
        bias = self.weight(result + ".bias", self.model.hidden)
        return self.node(result, "LayerNormalization <axis = -1, epsilon = 1e-5>", x, weight, bias)


def _attention(text: _Text, layer: str, x: str) -> str:
    model = text.model
    q = text.linear(layer + "q", x, model.hidden, model.heads * model.width)
    k = text.linear(layer + "k", x, model.hidden, model.kv * model.width)
    v = text.linear(layer + "v", x, model.hidden, model.kv * model.width)
    if not model.gpt:
        q, k = (text.node(name + ".rotated", f"RotaryEmbedding <num_heads = {heads}>", name, "cos", "sin", "positions")
                for name, heads in ((q, model.heads), (k, model.kv)))
    call = f"Attention <is_causal = 1, q_num_heads = {model.heads}, kv_num_heads = {model.kv}>"
    return text.node(layer + "attention", call, q, k, v)


def _block(text: _Text, i: int, h: str) -> str:
    model, layer = text.model, f"layer.{i}."
    x = text.norm(layer + "x", h)
    o = text.linear(layer + "o", _attention(text, layer, x), model.heads * model.width, model.hidden)
    middle = text.node(layer + "middle", "Add", h, o)
    y = text.norm(layer + "y", middle)
    if model.gpt:
        up = text.linear(layer + "up", y, model.hidden, model.ffn)
        wide = text.node(layer + "active", 'Gelu <approximate = "tanh">', up)
    else:
        gate = text.linear(layer + "gate", y, model.hidden, model.ffn)
        up = text.linear(layer + "up", y, model.hidden, model.ffn)
        wide = text.node(layer + "product", "Mul", text.node(layer + "active", "Swish", gate), up)
    down = text.linear(layer + "down", wide, model.ffn, model.hidden)
    return text.node(f"h.{i + 1}", "Add", middle, down)


def _positions(text: _Text) -> list[str]:
    """Nodes that compute positions, and what depends on positions alone."""
    model = text.model
    text.weights += ["int64 zero = {0}", "int64 one = {1}", "int64[1] last = {1}"]
    nodes = ["  length = Shape <start = 1, end = 2> (input_ids)", "  length_scalar = Squeeze (length)",
             "  range = Range (zero, length_scalar, one)"]
    if model.gpt:
        return nodes
    frequencies = ", ".join(f"{10000 ** (-2 * i / model.width):.8g}" for i in range(model.width // 2))
    return nodes + ["  ids_shape = Shape (input_ids)", "  positions = Expand (range, ids_shape)",
                    f"  frequencies = Constant <value = float[1, {model.width // 2}] {{{frequencies}}}> ()",
                    "  range_float = Cast <to = 1> (range)", "  range_column = Unsqueeze (range_float, last)",
                    "  angles = Mul (range_column, frequencies)", "  cos = Cos (angles)", "  sin = Sin (angles)"]


def text_of(model: Model) -> str:
    """input_ids [batch, sequence] int64; logits [batch, sequence, vocabulary]."""
    text = _Text(model)
    embedding = text.weight("embedding.weight", model.vocabulary, model.hidden)
    first = _positions(text)
    h = "h.0"
    if model.gpt:
        text.node("words", "Gather", embedding, "input_ids")
        text.node("places", "Gather", text.weight("places.weight", model.sequence, model.hidden), "range")
        text.node(h, "Add", "words", "places")
    else:
        text.node(h, "Gather", embedding, "input_ids")
    for i in range(model.layers):
        h = _block(text, i, h)
    normed = text.norm("normed", h)
    if model.tied:
        head = text.node("head.weight", "Transpose <perm = [1, 0]>", embedding)
    else:
        head = text.weight("head.weight", model.hidden, model.vocabulary)
    text.node("logits", "MatMul", normed, head)
    ids, logits = "int64[batch, sequence] input_ids", f"float[batch, sequence, {model.vocabulary}] logits"
    header = f'<ir_version: 11, opset_import: ["" : 24]>\ndecoder ({ids}) => ({logits}) <\n  '
    return header + ",\n  ".join(text.weights) + "\n> {\n" + "\n".join(first + text.nodes) + "\n}\n"
