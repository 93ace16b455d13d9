#!/usr/bin/env python3
"""Makes GGUF files of tiny models, by the `gguf` package of llama.cpp.

    make_gguf.py [NAME ...]      needs what make.py needs, and gguf 0.19; CPU only, a minute

Two kinds. QUANTISED are folders of their own with model.gguf and expected.safetensors (make.py says
what is in it): blocks are made here and decoded by the package, and transformers computes with the
decoded values. FOLDERS are golden checkpoints of make.py whose weights are written as model.gguf
beside their model.safetensors, in the type that they have: the answers are the folder's own.

Names of tensors are the package's, from its map of Hugging Face's names. Rows of q and k are
permuted as convert_hf_to_gguf.py does it; expected values are transformers', which knows of neither.
../gguf/blocks.safetensors has blocks of random bytes of each type and the values that the package decodes.
"""
import json
import pathlib
import sys

import gguf
import numpy
import safetensors.torch
import torch
import transformers

import make

HERE = pathlib.Path(__file__).resolve().parent
Q = gguf.GGMLQuantizationType
PERMUTED = {"llama", "smollm3", "granite", "granitemoe"}
WITH_ONE = {"gemma", "gemma2", "gemma3", "nemotron"}  # norms are stored as 1 + w
WIDE = dict(hidden_size=256, intermediate_size=256, num_attention_heads=4, num_key_value_heads=1,
            head_dim=16)
NARROW = dict(hidden_size=64, intermediate_size=96)

# Family, architecture, configuration, changes that must move logits, types by end of the GGUF name.
QUANTISED = {
    "gguf_llama_q8_0": ("Llama", "llama", dict(
        rope_parameters=make.PLAIN, tie_word_embeddings=True, **NARROW), {"": Q.Q8_0}),
    "gguf_llama_q4": ("Llama", "llama", dict(
        rope_parameters=make.PLAIN, attention_bias=True, **NARROW),
        {"": Q.Q4_0, "attn_v": Q.Q4_1, "attn_output": Q.Q4_1, "output": Q.Q8_0,
         "token_embd": Q.F16, "1.attn_q": Q.Q5_0, "1.attn_k": Q.Q5_0, "1.attn_v": Q.Q8_0,
         "1.attn_output": Q.IQ4_NL, "1.ffn_gate": Q.Q5_1, "1.ffn_up": Q.Q5_1,
         "1.ffn_down": Q.MXFP4}),
    "gguf_llama_k": ("Llama", "llama", dict(rope_parameters=make.PLAIN, **WIDE),
                     {"": Q.Q4_K, "attn_v": Q.Q6_K, "attn_output": Q.Q5_0, "ffn_down": Q.Q6_K,
                      "output": Q.Q3_K, "token_embd": Q.Q8_0, "1.attn_q": Q.Q5_K,
                      "1.attn_k": Q.Q5_K, "1.attn_v": Q.Q5_K, "1.ffn_gate": Q.Q2_K,
                      "1.ffn_up": Q.Q2_K, "1.ffn_down": Q.IQ4_XS}),
    "gguf_mixtral": ("Mixtral", "llama", dict(
        rope_parameters=make.PLAIN, num_local_experts=4, num_experts_per_tok=2,
        **{**NARROW, "intermediate_size": 32}), {"": Q.Q4_0, "ffn_down_exps": Q.Q8_0}),
    "gguf_qwen3_moe": ("Qwen3Moe", "qwen3moe", dict(
        rope_parameters=make.PLAIN, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=32, norm_topk_prob=True, mlp_only_layers=[],
        **{**NARROW, "hidden_size": 32}),
        {"": Q.Q8_0}),
    "gguf_qwen2_moe": ("Qwen2Moe", "qwen2moe", dict(
        rope_parameters=make.PLAIN, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
        shared_expert_intermediate_size=128, norm_topk_prob=False, mlp_only_layers=[],
        use_sliding_window=False, **{**NARROW, "hidden_size": 32}),
        {"": Q.Q5_0, "ffn_down_exps": Q.IQ4_NL, "token_embd": Q.F16, "output": Q.Q8_0}),
}

FOLDERS = {"llama3_scaled": "llama", "llama_bias_wide_heads": "llama", "llama_yarn": "llama",
           "llama_linear_v4": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
           "phi3_longrope": "phi3", "glm4": "glm4",
           "exaone4_full": "exaone4", "seed_oss_out_bias": "seed_oss", "ernie4_5": "ernie4_5",
           "stablelm_parallel": "stablelm", "starcoder2": "starcoder2", "gpt_neox": "gptneox",
           "glm4_moe": "glm4moe", "ernie4_5_moe": "ernie4_5-moe", "gpt_oss_mxfp4": "gpt-oss",
           "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3", "cohere": "command-r",
           "cohere2": "cohere2", "nemotron": "nemotron", "granite": "granite",
           "granite_moe": "granitemoe", "minimax_m2": "minimax-m2", "olmoe": "olmoe",
           "dots1": "dots1"}
# Where the f16 halves stand in a block by which its values are scaled.
SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0], Q.Q2_K: [80, 82],
          Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0],
          Q.IQ4_XS: [0], Q.MXFP4: []}


def permuted(rows, heads):
    """Rows of q or k, halves of a head as neighbouring pairs."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def random_blocks(kind, shape, target, generator):
    """Blocks of a type that the package does not write, of about the deviation `target`."""
    rows, columns = shape
    size, type_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (rows * columns // size, type_bytes), dtype=numpy.uint8)

    def put(at, value):
        blocks[:, at:at + 2] = numpy.frombuffer(numpy.float16(value).tobytes(), numpy.uint8)

    # Scales are 1, then as large as gives the deviation; minima are in the middle of the codes.
    middle = {Q.Q2_K: 1.5, Q.Q4_K: 7.5, Q.Q5_K: 15.5}.get(kind)
    for at, value in zip(SCALES[kind], (1.0, middle)):
        put(at, value)
    deviation = float(gguf.quants.dequantize(blocks.reshape(rows, -1), kind).std())
    for at, value in zip(SCALES[kind], (1.0, middle)):
        put(at, value * target / deviation)
    return blocks.reshape(rows, -1)


def encoded(name, values, kind, generator):
    """The bytes of a matrix in `kind`, and the values that they stand for."""
    if kind in (Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS):
        stored = random_blocks(kind, values.shape, float(values.std()), generator)
    else:
        stored = gguf.quants.quantize(values, kind)
    return stored, gguf.quants.dequantize(stored, kind).reshape(values.shape)


def type_of(name, types):
    ends = [end for end in types if end and name.rsplit(".", 1)[0].endswith(end)]
    return types[max(ends, key=len) if ends else ""]


def numbers(writer, arch, config, tensors):
    """The keys, as convert_hf_to_gguf.py writes them."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    further = config.get("num_nextn_predict_layers", 0)
    writer.add_block_count(config["num_hidden_layers"] + further)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_vocab_size(config["vocab_size"])
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    for key in ("layer_norm_eps", "norm_epsilon", "norm_eps"):
        if key in config:
            writer.add_layer_norm_eps(config[key])
    if "use_parallel_residual" in config:
        writer.add_parallel_residual(config["use_parallel_residual"])
    if config.get("sliding_window") and arch in (
            "phi3", "starcoder2", "gpt-oss", "gemma2", "gemma3", "cohere2"):
        writer.add_sliding_window(config["sliding_window"])
    pattern = config.get("layer_types", [])
    if arch in ("gemma3", "cohere2"):
        writer.add_sliding_window_pattern(pattern.index("full_attention") + 1)
    for key, add in (("attn_logit_softcapping", writer.add_attn_logit_softcapping),
                     ("final_logit_softcapping", writer.add_final_logit_softcapping),
                     ("embedding_multiplier", writer.add_embedding_scale),
                     ("residual_multiplier", writer.add_residual_scale),
                     ("attention_multiplier", writer.add_attention_scale),
                     ("logits_scaling", writer.add_logit_scale),
                     ("logit_scale", writer.add_logit_scale),
                     ("clip_qkv", writer.add_clamp_kqv)):
        if config.get(key) is not None:
            add(config[key])
    routing(writer, arch, config)
    rope(writer, config, head_dim, tensors)


def routing(writer, arch, config):
    experts = [config.get(key) for key in (
        "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") if key in config]
    if experts:
        writer.add_expert_count(experts[0])
        writer.add_expert_used_count(config.get("num_experts_per_tok") or config["moe_k"])
    width = config.get("moe_intermediate_size")
    if width or arch == "gpt-oss":
        writer.add_expert_feed_forward_length(width or config["intermediate_size"])
    if arch == "minimax-m2":
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if arch == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if arch in ("glm4moe", "dots1"):
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_leading_dense_block_count(config["first_k_dense_replace"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
    if arch == "glm4moe":
        writer.add_nextn_predict_layers(config["num_nextn_predict_layers"])
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
    if arch == "ernie4_5-moe":
        writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
        writer.add_leading_dense_block_count(config["moe_layer_start_index"])
        writer.add_expert_shared_count(config["moe_num_shared_experts"])
        writer.add_expert_shared_feed_forward_length(  # as the converter has it
            config["intermediate_size"] // config["num_key_value_heads"])


def rope(writer, config, head_dim, tensors):
    given = config.get("rope_parameters") or {
        "rope_theta": config.get("rope_theta", 10000.0), **(config.get("rope_scaling") or {})}
    if "full_attention" in given:
        local = given["sliding_attention"]["rope_theta"]
        writer.add_float32(f"{writer.arch}.rope.freq_base_swa", local)
        given = given["full_attention"]
    kind = given.get("rope_type", given.get("type", "default"))
    rotated = int(head_dim * given.get("partial_rotary_factor",
                                       config.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(given["rope_theta"])
    writer.add_rope_dimension_count(rotated)
    original = given.get("original_max_position_embeddings",
                         config.get("original_max_position_embeddings"))
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(given["factor"])
        # The stretched length is the file's, but for Gemma 3's.
        if writer.arch != "gemma3":
            writer.add_context_length(int(config["max_position_embeddings"] * given["factor"]))
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(given["factor"])
        writer.add_rope_scaling_orig_ctx_len(original)
        if "beta_fast" in given:
            writer.add_rope_scaling_yarn_beta_fast(given["beta_fast"])
    elif kind == "longrope":
        config_class = transformers.Phi3Config(**config)
        rope_init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["longrope"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(rope_init(config_class, "cpu")[1])
        for name in ("long", "short"):
            tensors[f"rope_factors_{name}.weight"] = numpy.array(given[f"{name}_factor"],
                                                                 numpy.float32)
    elif kind == "llama3":
        plain = 1.0 / given["rope_theta"] ** (numpy.arange(0, rotated, 2) / rotated)
        rope_init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"]
        scaled = rope_init(transformers.LlamaConfig(**config), "cpu")[0].numpy()
        tensors["rope_freqs.weight"] = (plain / scaled).astype(numpy.float32)


def tokenizer(writer, config):
    """As small as one may be: tests give prompts as ids."""
    count = config["vocab_size"]
    tokens = ["<s>", "</s>", "<unk>", "a", "b", "ab"] + [f"t{i}" for i in range(6, count)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (count - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def gguf_tensors(arch, config, state):
    """GGUF names and values for a checkpoint's."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH_NAMES_INVERSE[arch],
                                     config["num_hidden_layers"])
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    tensors, experts, norms = {}, {}, {}
    for name, tensor in state.items():
        values = tensor.float().numpy()
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if ".experts." in name and ".weight" in name:
            before, after = name.split(".experts.")
            index, part = after.split(".", 1)
            experts.setdefault(before + ".experts." + part, {})[int(index)] = values
            continue
        if ".norms." in name:  # of each head
            before, head = name.removesuffix(".weight").rsplit(".norms.", 1)
            norms.setdefault(before + ".weight", {})[int(head)] = values
            continue
        if name.endswith("norm.weight") and arch in WITH_ONE:
            values = values + 1
        if name.endswith("input_linear.weight"):  # of all experts: gate, then up
            layer = name.split(".")[2]
            tensors[f"blk.{layer}.ffn_gate_exps.weight"], \
                tensors[f"blk.{layer}.ffn_up_exps.weight"] = numpy.split(values, 2, axis=1)
            continue
        if name.endswith("e_score_correction_bias"):
            name = name.replace("_correction_bias", "_correction.bias")
        elif name.endswith(".sinks"):
            name += ".weight"
        if arch in PERMUTED and ("q_proj" in name or "k_proj" in name):
            values = permuted(values, heads if "q_proj" in name else kv_heads)
        if arch == "gptneox" and "query_key_value" in name:
            each = values.reshape(heads, 3, config["hidden_size"] // heads, *values.shape[1:])
            values = each.swapaxes(0, 1).reshape(values.shape)
        place = names.get_name(name, try_suffixes=(".weight", ".bias"))
        # The package has no head of its own where published models have none.
        tensors[place or {"lm_head.weight": "output.weight"}.get(name)] = values
    for name, parts in {**experts, **norms}.items():
        values = numpy.stack([parts[i] for i in range(len(parts))])
        tensors[names.get_name(name, try_suffixes=(".weight",))] = values
    assert None not in tensors, (arch, list(state))
    return tensors


def write(path, arch, config, tensors, kinds):
    """kinds: what is stored for a tensor that is not F32, by name: (type, bytes)."""
    writer = gguf.GGUFWriter(path, arch)
    numbers(writer, arch, config, tensors)
    tokenizer(writer, config)
    for name, values in tensors.items():
        if name in kinds:
            kind, stored = kinds[name]
            writer.add_tensor(name, stored, raw_dtype=kind)
        else:
            writer.add_tensor(name, numpy.ascontiguousarray(values, numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.chmod(0o644)


def of_gpt_oss(state):
    """The experts' tensors of MXFP4 as GGUF has them, and the rest; gate and up apart."""
    left, kinds, tensors = {}, {}, {}
    for name, tensor in state.items():
        part = next((p for p in ("gate_up_proj", "down_proj") if f"experts.{p}_" in name), None)
        if part is None:
            left[name] = tensor
            continue
        if name.endswith("_scales"):
            continue
        rows = {"down": slice(None)} if part == "down_proj" else {
            "gate": slice(0, None, 2), "up": slice(1, None, 2)}
        for kind, taken in rows.items():
            place = f"blk.{name.split('.')[2]}.ffn_{kind}_exps."
            if name.endswith("_bias"):
                tensors[place + "bias"] = tensor[:, taken].float().numpy()
                continue
            pairs = tensor[:, taken].numpy()  # the even input in the low half
            codes = numpy.stack([pairs & 15, pairs >> 4], -1).reshape(*pairs.shape[:-1], 32)
            scales = state[name.replace("_blocks", "_scales")][:, taken].numpy()[..., None]
            blocks = numpy.concatenate([scales, codes[..., :16] | codes[..., 16:] << 4], -1)
            stored = numpy.ascontiguousarray(blocks.reshape(*blocks.shape[:2], -1))
            tensors[place + "weight"] = None
            kinds[place + "weight"] = (Q.MXFP4, stored)
    return left, tensors, kinds


def hub_state(model, folder):
    """Tensors under the names of a published checkpoint (one an expert)."""
    model.save_pretrained(folder)
    return safetensors.torch.load_file(folder / "model.safetensors")


def quantise(family, arch, config, types, seed, folder):
    """A model of random blocks: the model with their values, and what the file has."""
    variant = make.Variant(family, config, [], prompts=make.SHORT)
    model = make.build(variant)
    make.randomise(model, torch.float32, 2.5 if types[""] != Q.Q4_K else 1.5, seed)
    state = hub_state(model, folder)
    written = json.loads((folder / "config.json").read_text())
    generator = numpy.random.default_rng(seed)
    tensors = gguf_tensors(arch, written, state)
    kinds = {}
    for name, values in tensors.items():
        if values.ndim < 2 or name.endswith("ffn_gate_inp.weight"):
            continue
        kind = type_of(name, types)
        flat = values.reshape(-1, values.shape[-1])
        if kind == Q.F16:
            stored = flat.astype(numpy.float16)
            tensors[name] = stored.astype(numpy.float32).reshape(values.shape)
        else:
            stored, decoded = encoded(name, flat, kind, generator)
            tensors[name] = decoded.reshape(values.shape)
        kinds[name] = (kind, stored.reshape(*values.shape[:-1], -1))
    back(arch, written, state, tensors)
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})
    rounded = type(model).from_pretrained(folder, attn_implementation="eager").eval()
    return variant, rounded, written, tensors, kinds


def back(arch, config, state, tensors):
    """Puts the values of GGUF's tensors into a checkpoint's: gguf_tensors, on numbers of elements."""
    places = {name: torch.arange(t.numel(), dtype=torch.float64).reshape(t.shape)
              for name, t in state.items()}
    offsets, total = {}, 0
    for name in state:
        offsets[name], total = total, total + state[name].numel()
        places[name] = places[name] + offsets[name]
    flat = numpy.concatenate([t.float().numpy().ravel() for t in state.values()])

    class Place:  # a tensor of exact numbers that gguf_tensors may carry about
        def __init__(self, tensor):
            self.tensor = tensor

        def float(self):
            return self.tensor

    moved = gguf_tensors(arch, config, {name: Place(p) for name, p in places.items()})
    for name, place in moved.items():
        flat[place.astype(numpy.int64).ravel()] = tensors[name].ravel()
    for name, tensor in state.items():
        part = flat[offsets[name]:offsets[name] + tensor.numel()]
        state[name] = torch.from_numpy(part.reshape(tuple(tensor.shape)).copy())


def make_quantised(name):
    family, arch, config, types = QUANTISED[name]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    for seed in range(1, make.SEEDS):
        variant, model, written, tensors, kinds = quantise(family, arch, config, types, seed, folder)
        golden = make.compute(model, variant, seed)
        if golden is None or not make.all_matters(variant, model, golden):
            continue
        for file in folder.iterdir():
            file.unlink()
        write(folder / "model.gguf", arch, written, tensors, kinds)
        safetensors.torch.save_file(golden, folder / "expected.safetensors")
        (folder / "expected.safetensors").chmod(0o644)
        print(f"{name}: seed {seed}, {sum(f.stat().st_size for f in folder.iterdir())} bytes")
        return
    sys.exit(f"{name}: no seed is good enough")


def make_of_folder(name):
    folder, arch = HERE / name, FOLDERS[name]
    config = json.loads((folder / "config.json").read_text())
    state = safetensors.torch.load_file(folder / "model.safetensors")
    state, tensors, kinds = of_gpt_oss(state) if arch == "gpt-oss" else (state, {}, {})
    tensors.update(gguf_tensors(arch, config, state))
    half = {torch.float16: Q.F16, torch.bfloat16: Q.BF16}.get(next(iter(state.values())).dtype)
    for key, values in tensors.items():
        matrix = key not in kinds and values.ndim >= 2 and not key.endswith("ffn_gate_inp.weight")
        if half is not None and matrix:
            kinds[key] = (half, gguf.quants.quantize(values, half))
    if config.get("num_nextn_predict_layers"):  # of a layer that is left out
        tensors[f"blk.{config['num_hidden_layers']}.nextn.enorm.weight"] = numpy.ones(
            config["hidden_size"], numpy.float32)
    write(folder / "model.gguf", arch, config, tensors, kinds)
    print(f"{name}: {(folder / 'model.gguf').stat().st_size} bytes")


def make_blocks():
    """Rows of random blocks, their scales small, and what the package makes of them."""
    generator = numpy.random.default_rng(7)
    golden = {}
    for kind, places in SCALES.items():
        size, type_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = generator.integers(0, 256, (2, 512 // size, type_bytes), dtype=numpy.uint8)
        if kind == Q.MXFP4:
            blocks[..., 0] = generator.integers(0, 255, blocks.shape[:2])
        for at in places:
            halves = generator.normal(0, 0.02, blocks.shape[:2]).astype(numpy.float16)
            blocks[..., at:at + 2] = halves.view(numpy.uint8).reshape(*blocks.shape[:2], 2)
        stored = blocks.reshape(2, -1)
        values = gguf.quants.dequantize(stored, kind)
        golden[kind.name + ".blocks"] = torch.from_numpy(stored.copy())
        golden[kind.name + ".values"] = torch.from_numpy(values.astype(numpy.float32).copy())
    safetensors.torch.save_file(golden, HERE.parent / "gguf/blocks.safetensors")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    names = sys.argv[1:] or ["blocks", *QUANTISED, *FOLDERS]
    for name in names:
        if name == "blocks":
            make_blocks()
        elif name in QUANTISED:
            make_quantised(name)
        else:
            make_of_folder(name)


if __name__ == "__main__":
    gguf.MODEL_ARCH_NAMES_INVERSE = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    main()
