"""Quantised forms of the tiny checkpoints, as the packages write them that people quantise with: what
a matrix is worth comes from the package's own reader, so Tessera's is held against a second source.

Needs, beside what make.py does, the packages compressed-tensors, auto-round and bitsandbytes from
PyPI (with loguru, psutil and accelerate); each only for its own variants.
"""
import dataclasses
import importlib
import importlib.util
import re
import sys
import types
import zlib

import torch
from transformers.integrations import fbgemm_fp8, finegrained_fp8, mxfp4

E4M3 = torch.float8_e4m3fn


def checksum(parts):
    """CRC-32 of float32 values, rows below rows."""
    values = torch.cat(parts).float() + 0.0  # a zero without its sign
    return zlib.crc32(values.contiguous().numpy().tobytes())


def checksums(state):
    """Of the matrices that are multiplied as one; of a layer with stacked experts, of theirs."""
    sums = {}
    for layer in range(len({name.split(".")[2] for name in state if ".layers." in name})):
        prefix = f"model.layers.{layer}."
        if prefix + "self_attn.kv_b_proj.weight" in state:
            continue  # latent attention is computed by other matrices than the file's
        stacked = state.get(prefix + "mlp.experts.gate_up_proj")
        if stacked is not None:  # [experts, in, out], gate and up by turns
            for expert, (up, down) in enumerate(zip(
                    stacked.transpose(1, 2),
                    state[prefix + "mlp.experts.down_proj"].transpose(1, 2))):
                sums[f"{layer}.up.{expert}"] = checksum([up[0::2], up[1::2]])
                sums[f"{layer}.down.{expert}"] = checksum([down])
            continue
        for name, parts in (("qkv", ["self_attn." + p for p in ("q", "k", "v")]),
                            ("output", ["self_attn.o"]), ("up", ["mlp.gate", "mlp.up"]),
                            ("down", ["mlp.down"])):
            sums[f"{layer}.{name}"] = checksum([state[f"{prefix}{part}_proj.weight"]
                                                for part in parts])
    return sums


class Fp8Blocks:
    """DeepSeek's and Qwen's FP8: a scale for each block, short ones at the edges."""
    block = [16, 24]
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
              "weight_block_size": block, "modules_to_not_convert": ["lm_head"]}

    def quantise(self, name, weight):
        rows, columns = weight.shape
        blocks = [-(-rows // self.block[0]), -(-columns // self.block[1])]
        scales, codes = torch.empty(blocks), torch.empty_like(weight, dtype=E4M3)
        for i in range(blocks[0]):
            for j in range(blocks[1]):
                part = (slice(i * self.block[0], (i + 1) * self.block[0]),
                        slice(j * self.block[1], (j + 1) * self.block[1]))
                scales[i, j] = weight[part].abs().max() / 448
                codes[part] = (weight[part] / scales[i, j]).to(E4M3)
        values = finegrained_fp8._dequantize_fp8_weight(codes, scales, self.block, torch.float32)
        return values, {name: codes, name + "_scale_inv": scales}


class Fp8Tensor:
    """Ministral's FP8: one scale for a matrix, and one for what it is multiplied with."""
    config = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
              "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"]}

    def quantise(self, name, weight):
        scale = (weight.abs().max() / 448).to(torch.bfloat16)
        codes = (weight / scale.float()).to(E4M3)
        values = finegrained_fp8._dequantize_fp8_weight(codes, scale, None, torch.float32)
        activation = torch.tensor(0.125, dtype=torch.bfloat16)
        return values, {name: codes, name + "_scale_inv": scale,
                        name.removesuffix("weight") + "activation_scale": activation}


class Fbgemm:
    """FBGEMM's FP8: a scale for each output. Its layer reads it back, by torch's products."""
    config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
              "modules_to_not_convert": ["lm_head"]}

    def quantise(self, name, weight):
        rows, columns = weight.shape
        scales = weight.abs().amax(-1, keepdim=True) / 448
        codes = (weight / scales).to(E4M3)
        fbgemm_fp8._is_torch_xpu_available = True  # torch's products; the others need a GPU
        fbgemm_fp8.quantize_fp8_per_row = lambda x, scale_ub: (x.to(E4M3), torch.ones(len(x)))
        layer = fbgemm_fp8.FbgemmFp8Linear(columns, rows, False)
        layer.weight = torch.nn.Parameter(codes, requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(scales, requires_grad=False)
        values = layer(torch.eye(columns)).T.contiguous()
        return values, {name: codes, name + "_scale": scales}


class CompressedTensors:
    """Several schemes in one checkpoint, by the compressors of compressed-tensors."""

    def __init__(self, form, groups, scale_type=torch.bfloat16):
        self.groups, self.scale_type = groups, scale_type
        self.config = {
            "quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "kv_cache_scheme": None, "quantization_status": "compressed",
            "config_groups": {f"group_{i}": {
                "targets": [target], "weights": weights, "format": kind,
                "input_activations": None, "output_activations": None}
                for i, (target, kind, weights) in enumerate(groups)}}

    def quantise(self, name, weight):
        from compressed_tensors.compressors.base import BaseCompressor
        from compressed_tensors.quantization import QuantizationScheme
        for target, kind, weights in self.groups:
            if re.match(target.removeprefix("re:"), name):
                break
        else:
            return None
        scheme = QuantizationScheme(targets=[target], weights=weights)
        compressor = BaseCompressor.get_value_from_registry(kind)
        state = {"weight": weight, **self.scales(weight, scheme.weights)}
        stored = compressor.compress(state, scheme)
        read = {key: value.float() if key == "weight_scale" else value
                for key, value in stored.items()}
        values = compressor.decompress(read, scheme)["weight"].float()
        base = name.removesuffix("weight")
        return values, {base + key: value.contiguous() for key, value in stored.items()}

    def scales(self, weight, args):
        from compressed_tensors.quantization.utils import calculate_qparams
        if args.strategy == "group":
            grouped = weight.unflatten(-1, (-1, args.group_size))
            low, high = grouped.amin(-1), grouped.amax(-1)
        elif args.strategy == "channel":
            low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
        else:
            low, high = weight.amin().reshape(1), weight.amax().reshape(1)
        scale, zero = calculate_qparams(low.clamp(max=0), high.clamp(min=0), args)
        scale = scale.to(self.scale_type)
        return {"weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}


@dataclasses.dataclass
class Gptq:
    """Words of GPTQ, also as AutoRound packs them; AutoRound's linear layer reads them back."""
    config: dict
    bits: dict             # by the last part of a module's name; absent: left in 16 bits
    group: int = 16
    order: bool = False    # groups of inputs that are no neighbours, as act-order leaves them
    less_one: bool = True  # zeros are stored less one
    signed: bool = False   # some scales are negative, as AutoRound finds them

    def quantise(self, name, weight):
        base = name.removesuffix(".weight")
        bits = self.bits.get(base.rsplit(".", 1)[1])
        if bits is None:
            return None
        rows, columns = weight.shape
        most = 2**bits - 1
        groups = torch.arange(columns) // self.group
        if self.order:
            generator = torch.Generator().manual_seed(len(name) + columns)
            groups = groups[torch.randperm(columns, generator=generator)]
        scales = torch.empty(rows, int(groups.max()) + 1)
        zeros = torch.empty_like(scales)
        for g in range(scales.shape[1]):
            part = weight[:, groups == g]
            low, high = part.amin(-1).clamp(max=0), part.amax(-1).clamp(min=0)
            scales[:, g] = ((high - low) / most).half().float()
            zeros[:, g] = (-low / scales[:, g]).round().clamp(1, most)
        if self.signed:
            scales[::2] *= -1
            zeros[::2] = (most - zeros[::2]).clamp(min=1)
        codes = (weight / scales[:, groups] + zeros[:, groups]).round().clamp(0, most)
        module = auto_round_module("_zp" if self.less_one else "")
        pack = module.unpack_bitstream.__globals__["pack_bitstream"]
        tensors = {
            "qweight": pack(codes.int(), bits, dim=1).T.contiguous(),
            "qzeros": pack((zeros - int(self.less_one)).T.int().contiguous(), bits, dim=1),
            "scales": scales.T.half().contiguous()}
        if self.order:
            tensors["g_idx"] = groups.int()
        # A group for each input: with g_idx the layer reads matrices wrong that have more outputs
        # than inputs.
        layer = module.QuantLinear(bits, 1, columns, rows, False)
        layer.qweight, layer.qzeros = tensors["qweight"], tensors["qzeros"][groups]
        layer.scales = tensors["scales"].float()[groups]
        values = layer(torch.eye(columns)).T.contiguous()
        return values, {f"{base}.{key}": tensor for key, tensor in tensors.items()}


def auto_round_module(suffix):
    """auto_round_extension.torch.qlinear_torch, without the rest of auto-round, which needs more."""
    if "auto_round.utils" not in sys.modules:
        root = importlib.util.find_spec("auto_round").submodule_search_locations[0]
        for name, path in (("auto_round", root), ("auto_round.utils", root + "/utils")):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [path]
        sys.modules["auto_round.utils"].get_packing_device = torch.device
    return importlib.import_module("auto_round_extension.torch.qlinear_torch" + suffix)


class BitsAndBytes:
    """NF4 with scales that are quantised themselves; blocks of 64 weights begin within rows of 48."""
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
              "_load_in_4bit": True, "_load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
              "bnb_4bit_use_double_quant": True, "bnb_4bit_quant_storage": "uint8",
              "bnb_4bit_compute_dtype": "bfloat16", "llm_int8_skip_modules": ["lm_head"]}

    def quantise(self, name, weight):
        from bitsandbytes import functional
        from bitsandbytes.backends.default import ops
        if "o_proj" in name:
            return None
        nested = "down_proj" not in name
        codes, state = functional.quantize_4bit(weight.contiguous(), blocksize=64, quant_type="nf4",
                                                compress_statistics=nested)
        absmax = state.absmax
        if nested:
            absmax = functional.dequantize_blockwise(absmax, state.state2) + state.offset
        # The plain form: the CPU kernel of 0.50 lets blocks begin anew with each row.
        values = ops._dequantize_4bit_compute(codes.reshape(-1), absmax, state.code, 64,
                                              weight.shape, torch.float32)
        return values, {name: codes, **{f"{name}.{key}": tensor.contiguous()
                                        for key, tensor in state.as_dict(packed=True).items()}}


class Mxfp4:
    """gpt-oss's experts, stacked as [experts, in, out], in the order that transformers reads."""
    config = {"quant_method": "mxfp4",
              "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}

    def quantise(self, name, experts):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return None
        blocks = experts.float().transpose(1, 2).unflatten(-1, (-1, 32))
        exponents = (blocks.abs().amax(-1) / 6).log2().ceil()
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        values = torch.cat([values, -values])
        scaled = blocks / exponents.exp2()[..., None]
        codes = (scaled[..., None] - values).abs().argmin(-1).to(torch.uint8)
        tensors = {name + "_blocks": (codes[..., 0::2] | codes[..., 1::2] << 4).contiguous(),
                   name + "_scales": (exponents + 127).to(torch.uint8).contiguous()}
        rounded = mxfp4.convert_moe_packed_tensors(
            tensors[name + "_blocks"], tensors[name + "_scales"], dtype=torch.float32)
        return rounded, tensors


class FourBitFloats:
    """e2m1 codes with scales of a byte, packed and read back by compressed-tensors."""

    def __init__(self, config, modelopt=False, powers=()):
        self.config, self.modelopt, self.powers = config, modelopt, powers

    def quantise(self, name, weight):
        from compressed_tensors.compressors.base import BaseCompressor
        from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
        from compressed_tensors.quantization import QuantizationScheme
        from compressed_tensors.quantization.lifecycle.forward import dequantize
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        base = name.removesuffix("weight")
        powers = base.split(".")[-2] in self.powers
        group = 32 if powers else 16
        args = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": group,
                "strategy": "group" if powers else "tensor_group",
                "scale_dtype": "torch.uint8" if powers else "torch.float8_e4m3fn"}
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        grouped = weight.unflatten(-1, (-1, group))
        number = None if powers else generate_gparam(weight.amin(), weight.amax())
        state = {"weight": weight, "weight_scale": calculate_qparams(
            grouped.amin(-1), grouped.amax(-1), scheme.weights, number)[0].float()}
        if not powers:
            state["weight_global_scale"] = number
        form = "mxfp4-pack-quantized" if powers else "nvfp4-pack-quantized"
        compressor = BaseCompressor.get_value_from_registry(form)
        stored = compressor.compress(state, scheme)
        codes = unpack_fp4_from_uint8(stored["weight_packed"], *weight.shape, dtype=torch.float32)
        scales = compressor._decompress_scale(stored["weight_scale"], torch.float32)
        if self.modelopt:  # which multiplies, where compressed-tensors divides
            number = (1 / number).reshape(())
            values = (codes.unflatten(-1, (-1, group)) * (scales * number)[..., None]).flatten(-2)
        else:  # decompress() does the same in bfloat16
            values = dequantize(codes, scales, args=scheme.weights, dtype=torch.float32,
                                global_scale=number)
        if self.modelopt:
            stored = {"weight": stored["weight_packed"], "weight_scale": stored["weight_scale"],
                      "weight_scale_2": number, "input_scale": torch.tensor(0.125)}
        return values, {base + key: value.contiguous() for key, value in stored.items()}


class Mixed:
    """ModelOpt's MIXED_PRECISION: FP8 with a scale of the matrix, and floats of four bits."""
    layers = {f"model.layers.{i}.{part}_proj": algorithm for i in range(2)
              for part, algorithm in (("self_attn.q", "FP8"), ("self_attn.k", "FP8"),
                                      ("self_attn.v", "FP8"), ("mlp.gate", "NVFP4"),
                                      ("mlp.up", "NVFP4"), ("mlp.down", "W4A16_NVFP4"))}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "ignore": ["lm_head"],
              "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
              "quantized_layers": {name: {"quant_algo": algorithm} for name, algorithm in layers.items()}}
    four_bits = FourBitFloats(None, modelopt=True)

    def quantise(self, name, weight):
        algorithm = self.layers.get(name.removesuffix(".weight"))
        if algorithm is None:
            return None
        if algorithm != "FP8":
            return self.four_bits.quantise(name, weight)
        scale = (weight.abs().max() / 448).float()
        codes = (weight / scale).to(E4M3)
        values = finegrained_fp8._dequantize_fp8_weight(codes, scale, None, torch.float32)
        return values, {name: codes, name + "_scale": scale}


def integers(bits, strategy, **more):
    return {"num_bits": bits, "type": "int", "strategy": strategy, "symmetric": True, **more}


def floats(strategy):
    return {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True}


FORMATS = {
    "fp8_blocks": Fp8Blocks(),
    "fp8_tensor": Fp8Tensor(),
    "fbgemm_fp8": Fbgemm(),
    # An ignored matrix beside packed ones, two widths, scales for groups and for whole rows.
    "pack_quantized": CompressedTensors("pack-quantized", [
        (r"re:.*layers\.\d\.(self_attn\.[qvo]|mlp\.(gate|up))_proj", "pack-quantized",
         integers(4, "group", group_size=16, symmetric=False)),
        (r"re:.*layers\.0\.mlp\.down_proj", "pack-quantized", integers(8, "channel")),
        (r"re:.*layers\.1\.mlp\.down_proj", "pack-quantized", integers(4, "channel"))]),
    "eight_bits": CompressedTensors("mixed-precision", [
        (r"re:.*\.[qk]_proj", "float-quantized", floats("channel")),
        (r"re:.*\.(v|gate)_proj", "float-quantized", floats("tensor")),
        (r"re:.*\.(o|up)_proj", "int-quantized", integers(8, "channel")),
        (r"re:.*\.down_proj", "int-quantized", integers(8, "channel", symmetric=False))]),
    "gptq_act_order": Gptq(
        {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "sym": False,
         "dynamic": {r"+:.*\.down_proj": {"bits": 8}, r"+:.*\.o_proj": {"bits": 3}}},
        {"q_proj": 4, "k_proj": 4, "v_proj": 4, "o_proj": 3, "gate_proj": 4, "up_proj": 2,
         "down_proj": 8}, order=True),
    "auto_round": Gptq(
        {"quant_method": "auto-round", "packing_format": "auto_round", "bits": 4, "group_size": 16,
         "sym": False, "data_type": "int", "block_name_to_quantize": "model.layers",
         "extra_config": {"model.layers.0.mlp.gate_proj": {"bits": 16}}},
        {"q_proj": 4, "k_proj": 4, "v_proj": 4, "o_proj": 4, "up_proj": 4, "down_proj": 4},
        less_one=False, signed=True),
    "bitsandbytes": BitsAndBytes(),
    "mxfp4": Mxfp4(),
    "nvfp4": FourBitFloats(
        {"quant_method": "compressed-tensors", "format": "mixed-precision", "ignore": ["lm_head"],
         "config_groups": {
             "group_0": {"targets": ["Linear"], "format": "nvfp4-pack-quantized", "weights": {
                 "num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group",
                 "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"},
                 "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local",
                                       "strategy": "tensor_group", "group_size": 16}},
             "group_1": {"targets": ["re:.*o_proj"], "format": "mxfp4-pack-quantized", "weights": {
                 "num_bits": 4, "type": "float", "symmetric": True, "strategy": "group",
                 "group_size": 32, "scale_dtype": "torch.uint8"}}}}, powers=("o_proj",)),
    "modelopt_mixed": Mixed(),
}
