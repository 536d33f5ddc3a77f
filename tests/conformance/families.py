#!/usr/bin/env python3
"""Runs small models of many families, as PyTorch exports them from transformers, on meshes, beside PyTorch's answers.

    venv/bin/pip install torch transformers onnx onnxscript numpy
    venv/bin/python tests/conformance/families.py [NAME...] [--tessera build/tessera] [--keep FOLDER]

Prints a row for each family: on each mesh the largest difference from PyTorch, relative to the largest element; how many
Attention and Experts operators its graph has; and, of decoders, where tessera generate keeps keys and values, and whether
the text is the one that runs over the whole text give. The exit code is 1 if a family differs. Weights are random, so
that the answers say nothing; dimensions are free where PyTorch can export them so. Needs some 10 minutes.
"""
import argparse
import logging
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import torch
import transformers

MESHES = ["tp=1", "tp=2", "dp=2,tp=2"]
TOLERANCE = 2e-4  # of float32, over a whole model
TOKENS = 128
FREE = torch.export.Dim.DYNAMIC
TEXT = dict(vocab_size=TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
IMAGE = dict(image_size=32, patch_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4)
SPEECH = dict(vocab_size=32, conv_dim=[16, 16], conv_kernel=[10, 3], conv_stride=[5, 2], num_feat_extract_layers=2,
              num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, hidden_size=32, intermediate_size=64,
              num_hidden_layers=2, num_attention_heads=4)
PAIR = dict(vocab_size=TOKENS, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
            use_cache=False)
STAGES = dict(hidden_sizes=[8, 16], depths=[1, 1])
FOUR_STAGES = dict(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2])
LATENT = dict(kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
              num_key_value_heads=4)
ROUTED = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
OLD_GPT = dict(n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)

# The class in transformers without its ending, and what its configuration has beside TEXT.
DECODERS = {
    "Bamba": dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_chunk_size=4, attn_layer_indices=[1]),
    "BioGpt": {}, "Bloom": dict(n_layer=2, n_head=4), "CodeGen": dict(OLD_GPT, n_ctx=64), "Cohere": {},
    "Cohere2": dict(sliding_window=4), "DeepseekV3": dict(LATENT, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
                                                          topk_group=1, moe_intermediate_size=16,
                                                          first_k_dense_replace=1, n_shared_experts=1),
    "DiffLlama": {}, "Ernie4_5": {}, "Exaone4": dict(sliding_window=4), "Falcon": dict(num_kv_heads=2),
    "FalconMamba": dict(state_size=4), "Gemma": dict(head_dim=8),
    "Gemma2": dict(head_dim=8, sliding_window=4, query_pre_attn_scalar=8),
    "Gemma3": dict(head_dim=8, sliding_window=4, query_pre_attn_scalar=8), "Glm4": dict(head_dim=8), "GPTJ": OLD_GPT,
    "GPTNeo": dict(attention_types=[[["global", "local"], 1]], num_layers=2, num_heads=4, window_size=4), "GPTNeoX": {},
    "GptOss": dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4), "Granite": {},
    "GraniteMoe": dict(num_local_experts=4, num_experts_per_tok=2),
    "Jamba": dict(num_experts=4, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
                  mamba_d_state=4, use_mamba_kernels=False),
    "Lfm2": dict(layer_types=["conv", "full_attention"], block_ff_dim=64),
    "Mamba": dict(state_size=4, expand=2, conv_kernel=4),
    "Mamba2": dict(state_size=8, num_heads=8, head_dim=8, expand=2, n_groups=1, chunk_size=4),
    "Mistral": dict(sliding_window=4), "Mixtral": dict(num_local_experts=4),
    "Mpt": dict(d_model=32, n_heads=4, n_layers=2, max_seq_len=64), "Nemotron": {}, "Olmo": {}, "Olmo2": {},
    "OPT": dict(ffn_dim=64, word_embed_proj_dim=32), "Persimmon": {}, "Phi": {}, "Phi3": {}, "Qwen2": {},
    "Qwen3": dict(head_dim=8), "Qwen3Moe": dict(ROUTED, head_dim=8),
    "Qwen3Next": dict(ROUTED, head_dim=8, shared_expert_intermediate_size=16, linear_num_key_heads=2,
                      linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                      layer_types=["linear_attention", "full_attention"]),
    "RecurrentGemma": dict(head_dim=8, lru_width=32, attention_window_size=8, num_hidden_layers=3),
    "Rwkv": dict(attention_hidden_size=32, context_length=64), "SmolLM3": {}, "StableLm": {}, "Starcoder2": {},
    "XGLM": dict(d_model=32, ffn_dim=64, num_layers=2, attention_heads=4),
}
ENCODERS = {
    "Albert": dict(embedding_size=16), "Bert": {}, "BigBird": dict(attention_type="original_full"),
    "ConvBert": dict(embedding_size=32),
    "Deberta": dict(relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=16),
    "DebertaV2": dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
                      max_relative_positions=16),
    "DistilBert": dict(dim=32, hidden_dim=64, n_layers=2, n_heads=4), "Electra": dict(embedding_size=32), "FNet": {},
    "IBert": {},
    "LayoutLM": {},
    "MobileBert": dict(embedding_size=32, intra_bottleneck_size=16, true_hidden_size=16),
    "ModernBert": dict(local_attention=4, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2), "MPNet": {},
    "Nystromformer": dict(num_landmarks=12, segment_means_seq_len=12), "RoFormer": dict(embedding_size=32),
    "Roberta": dict(max_position_embeddings=80),
    "SqueezeBert": dict(embedding_size=32, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1,
                        intermediate_groups=2, output_groups=2),
}
PAIRS = {"Bart": {}, "M2M100": {}, "Marian": dict(pad_token_id=0, decoder_start_token_id=0), "Pegasus": {}}
# The ending of the class, its result, the image's size, and its configuration.
IMAGES = {
    "CLIPVision": ("Model", "pooler_output", 32, IMAGE),
    "ConvNext": ("ForImageClassification", "logits", 32, dict(STAGES, num_stages=2)),
    "ConvNextV2": ("ForImageClassification", "logits", 32, dict(STAGES, num_stages=2)),
    "DeiT": ("ForImageClassification", "logits", 32, IMAGE),
    "Detr": ("ForObjectDetection", "logits", 64, dict(
        d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=5, use_timm_backbone=False, use_pretrained_backbone=False,
        backbone=None, backbone_config=transformers.ResNetConfig(embedding_size=8, layer_type="basic",
                                                                 out_features=["stage2"], **STAGES))),
    "Dinov2": ("Model", "last_hidden_state", 32, IMAGE),
    "FocalNet": ("ForImageClassification", "logits", 32, dict(image_size=32, patch_size=4, embed_dim=16, depths=[1, 1],
                                                              focal_levels=[2, 2], focal_windows=[3, 3])),
    "Hiera": ("ForImageClassification", "logits", 32, dict(
        image_size=[32, 32], patch_size=[3, 3], embed_dim=16, depths=[1, 1], num_heads=[1, 2], query_stride=[2, 2],
        masked_unit_size=[4, 4], num_query_pool=1, patch_stride=[2, 2], patch_padding=[1, 1])),
    "Levit": ("ForImageClassification", "logits", 64, dict(image_size=64, hidden_sizes=[16, 24, 32], depths=[1, 1, 1],
                                                           num_attention_heads=[2, 3, 4], key_dim=[8, 8, 8])),
    "MobileNetV1": ("ForImageClassification", "logits", 32, dict(image_size=32, depth_multiplier=0.25)),
    "MobileNetV2": ("ForImageClassification", "logits", 32, dict(image_size=32, depth_multiplier=0.25)),
    "MobileViT": ("ForImageClassification", "logits", 64, dict(image_size=64, hidden_sizes=[16, 16, 16],
                                                               neck_hidden_sizes=[8] * 7, num_attention_heads=4)),
    "PoolFormer": ("ForImageClassification", "logits", 64, dict(hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1])),
    "PvtV2": ("ForImageClassification", "logits", 64, dict(FOUR_STAGES, image_size=64)),
    "RegNet": ("ForImageClassification", "logits", 32, dict(STAGES, embedding_size=8, groups_width=4)),
    "ResNet": ("ForImageClassification", "logits", 32, dict(STAGES, embedding_size=8, layer_type="basic")),
    "Segformer": ("ForSemanticSegmentation", "logits", 64, dict(FOUR_STAGES, decoder_hidden_size=16)),
    "SiglipVision": ("Model", "last_hidden_state", 32, IMAGE),
    "Swinv2": ("ForImageClassification", "logits", 32, dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
                                                            num_heads=[2, 4], window_size=4)),
    "ViT": ("ForImageClassification", "logits", 32, IMAGE),
    "Yolos": ("ForObjectDetection", "logits", 32, dict(IMAGE, image_size=[32, 32], num_detection_tokens=4)),
}
SOUNDS = {name: ("ForCTC", "logits", SPEECH) for name in ("Hubert", "Wav2Vec2", "WavLM")}


def made(name, ending, settings, config=None):
    config = getattr(transformers, (config or name) + "Config")(**settings)
    config._experts_implementation = "batched_mm"  # the one that PyTorch can export
    return getattr(transformers, name + ending)(config).eval()


def ids(length):
    return torch.randint(3, TOKENS, (2, length))


def family(name):
    """A model, its inputs by name, how many of their leading dimensions are free, and the name of the result."""
    if name in DECODERS:
        settings = dict(TEXT, num_key_value_heads=2, use_cache=False)
        settings.update(DECODERS[name])
        config = "Gemma3Text" if name == "Gemma3" else None
        return made(name, "ForCausalLM", settings, config), {"input_ids": ids(10)}, 2, "logits"
    if name in ENCODERS:
        settings = dict(TEXT)
        settings.update(ENCODERS[name])
        return made(name, "Model", settings), {"input_ids": ids(12)}, 2, "last_hidden_state"
    if name in PAIRS:
        ending = "MTModel" if name == "Marian" else "ForConditionalGeneration"
        inputs = {"input_ids": ids(10), "decoder_input_ids": ids(6)}
        return made(name, ending, dict(PAIR, **PAIRS[name])), inputs, 2, "logits"
    if name in IMAGES:
        ending, result, size, settings = IMAGES[name]
        return made(name, ending, settings), {"pixel_values": torch.randn(2, 3, size, size)}, 1, result
    if name in SOUNDS:
        ending, result, settings = SOUNDS[name]
        return made(name, ending, settings), {"input_values": torch.randn(2, 1600)}, 1, result
    if name == "Whisper":
        settings = dict(PAIR, num_mel_bins=16, max_source_positions=30, max_target_positions=32, pad_token_id=0,
                        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
        inputs = {"input_features": torch.randn(2, 16, 60), "decoder_input_ids": ids(6)}
        return made(name, "ForConditionalGeneration", settings), inputs, 1, "logits"
    assert name == "AST"
    settings = dict(IMAGE, max_length=40, num_mel_bins=16, frequency_stride=8, time_stride=8)
    return made(name, "ForAudioClassification", settings), {"input_values": torch.randn(2, 40, 16)}, 1, "logits"


class Result(torch.nn.Module):
    """A model as a function of arrays with one result."""

    def __init__(self, model, names, result):
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *arrays):
        return getattr(self.model(**dict(zip(self.names, arrays))), self.result)


def export(name, folder):
    """Writes the model and its inputs; returns PyTorch's answer."""
    torch.manual_seed(1)
    model, inputs, free, result = family(name)
    module = Result(model, list(inputs), result)
    with torch.no_grad():
        answer = module(*inputs.values())
    options = dict(dynamo=True, verbose=False, input_names=list(inputs), output_names=["y"])
    dims = (tuple({d: FREE for d in range(free)} for _ in inputs),)
    try:
        program = torch.onnx.export(module, tuple(inputs.values()), dynamic_shapes=dims, **options)
    except torch.onnx.OnnxExporterError:  # recurrences over steps, for one length
        program = torch.onnx.export(module, tuple(inputs.values()), **options)
    program.save(folder / "model.onnx")
    np.savez(folder / "inputs.npz", **{key: value.numpy() for key, value in inputs.items()})
    return answer.numpy()


def run(tessera, *words):
    return subprocess.run([tessera, *map(str, words)], capture_output=True, text=True)


def differences(tessera, folder, wanted):
    """Of each mesh; a text says what failed."""
    for mesh in MESHES:
        done = run(tessera, "run", folder / "model.onnx", "--inputs", folder / "inputs.npz", "--mesh", mesh,
                   "--outputs", folder / "outputs.npz", "--quiet")
        if done.returncode != 0:
            yield done.stderr.strip().splitlines()[-1]
            continue
        got = np.load(folder / "outputs.npz")["y"]
        largest = np.abs(wanted).max() or 1
        yield float(np.abs(got - wanted).max() / largest) if got.shape == wanted.shape else str(got.shape)


def generation(tessera, folder):
    """Where keys and values are, and whether the text is the right one."""
    words = ["generate", folder / "model.onnx", "--ids", "5,7,9", "--max-new", "6"]
    full, quiet = run(tessera, *words), run(tessera, *words, "--quiet")
    if full.returncode != 0:
        return "one length" if "but the model needs" in full.stderr else full.stderr.strip(), True
    whole = run(tessera, *words, "--quiet", "--cache", "none")
    form = "held" if "caches for" in full.stderr + full.stdout else "none"
    return form, quiet.stdout == whole.stdout


def main():
    everything = [*DECODERS, *ENCODERS, *PAIRS, *IMAGES, *SOUNDS, "Whisper", "AST"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(everything))
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--keep", help="a folder for the models; by default, they are removed")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    failed = []
    print("| family | " + " | ".join(MESHES) + " | Attention | Experts | caches |\n" + "|---" * (len(MESHES) + 4) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.names or everything:
            folder = pathlib.Path(arguments.keep or scratch) / name
            folder.mkdir(parents=True, exist_ok=True)
            cells = list(differences(arguments.tessera, folder, export(name, folder)))
            good = all(isinstance(cell, float) and cell < TOLERANCE for cell in cells)
            graph = run(arguments.tessera, "shard", folder / "model.onnx", "--mesh", "tp=1", "--dump=merge_raised", "-o",
                        folder / "out").stdout
            form, same = generation(arguments.tessera, folder) if name in DECODERS else ("", True)
            cells = [f"{cell:.0e}" if isinstance(cell, float) else cell for cell in cells]
            counts = [len(re.findall(pattern, graph)) for pattern in (r"= Attention\b", r"= tessera\.Experts\b")]
            print(f"| {name} | " + " | ".join([*cells, *map(str, counts), form if same else form + ", another text"]) +
                  " |", flush=True)
            if not (good and same):
                failed.append(name)
    if failed:
        sys.exit(f"these differ: {', '.join(failed)}")


if __name__ == "__main__":
    main()
