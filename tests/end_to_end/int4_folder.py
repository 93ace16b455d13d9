"""The shipped model as a checkpoint of 4 bits, for tests. Standard library only."""

import array
import json
import shutil
import struct

GROUP = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the output of each nibble of a word, from the lowest on
GPTQ_ORDER = tuple(range(8))


def read_tensors(file):
    """{name: (type, shape, bytes)} of a safetensors file."""
    data = file.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}


def write_tensors(file, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def floats_of_bfloat16(data):
    return array.array("f", b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))


def rounded_to_half(value):
    return struct.unpack("<e", struct.pack("<e", value))[0]


def codes_of(weights, outputs, inputs):
    """Codes [outputs][inputs], scales and zeros [outputs][groups], so that a weight is scale * (code - zero)."""
    codes, scales, zeros = [], [], []
    for i in range(outputs):
        row = weights[i * inputs:(i + 1) * inputs]
        codes.append([])
        scales.append([])
        zeros.append([])
        for begin in range(0, inputs, GROUP):
            group = row[begin:begin + GROUP]
            low, high = min(0, min(group)), max(0, max(group))
            scale = rounded_to_half((high - low) / 15) or 1.0
            zero = min(15, max(1, round(-low / scale)))  # GPTQ stores it less one
            scales[i].append(scale)
            zeros[i].append(zero)
            codes[i] += [min(15, max(0, round(x / scale) + zero)) for x in group]
    return codes, scales, zeros


def packed_rows(rows, order):
    """Words along each row, eight numbers of 4 bits each."""
    words = array.array("I")
    for row in rows:
        for i in range(0, len(row), 8):
            words.append(sum(row[i + order[k]] << 4 * k for k in range(8)))
    return words.tobytes()


def transposed(rows):
    return [list(column) for column in zip(*rows)]


def int4_tensors(name, weights, outputs, inputs, method):
    codes, scales, zeros = codes_of(weights, outputs, inputs)
    groups = inputs // GROUP
    halves = b"".join(struct.pack(f"<{outputs}e", *row) for row in transposed(scales))
    tensors = {name + ".scales": ("F16", [groups, outputs], halves)}
    if method == "awq":
        tensors[name + ".qweight"] = ("I32", [inputs, outputs // 8], packed_rows(transposed(codes), AWQ_ORDER))
        tensors[name + ".qzeros"] = ("I32", [groups, outputs // 8], packed_rows(transposed(zeros), AWQ_ORDER))
        return tensors
    less_one = [[zero - 1 for zero in row] for row in transposed(zeros)]
    words = [[sum(row[i + k] << 4 * k for k in range(8)) for row in codes] for i in range(0, inputs, 8)]
    tensors[name + ".qweight"] = ("I32", [inputs // 8, outputs],
                                  b"".join(array.array("I", row).tobytes() for row in words))
    tensors[name + ".qzeros"] = ("I32", [groups, outputs // 8], packed_rows(less_one, GPTQ_ORDER))
    places = array.array("i", (i // GROUP for i in range(inputs)))
    tensors[name + ".g_idx"] = ("I32", [inputs], places.tobytes())
    return tensors


def plain_tensors(name, weights, outputs, inputs):
    """What the same codes stand for, in float32."""
    codes, scales, zeros = codes_of(weights, outputs, inputs)
    values = array.array("f", (scales[o][i // GROUP] * (codes[o][i] - zeros[o][i // GROUP])
                               for o in range(outputs) for i in range(inputs)))
    return {name + ".weight": ("F32", [outputs, inputs], values.tobytes())}


def write(source, folder, method):
    """`method`: awq, gptq, or plain, which rounds to the same weights and stores them in float32."""
    shutil.copytree(source, folder)
    tensors = {}
    for name, (kind, shape, data) in read_tensors(source / "model.safetensors").items():
        assert kind == "BF16", (name, kind)
        base = name.removesuffix(".weight")
        if base.endswith("_proj"):
            weights = floats_of_bfloat16(data)
            tensors.update(plain_tensors(base, weights, *shape) if method == "plain"
                           else int4_tensors(base, weights, *shape, method))
        elif method == "plain":
            tensors[name] = ("F32", shape, floats_of_bfloat16(data).tobytes())
        else:  # such checkpoints are in float16
            values = floats_of_bfloat16(data)
            tensors[name] = ("F16", shape, struct.pack(f"<{len(values)}e", *values))
    write_tensors(folder / "model.safetensors", tensors)
    config = json.loads((folder / "config.json").read_text())
    config["torch_dtype"] = "float32" if method == "plain" else "float16"
    if method != "plain":
        config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": GROUP}
        config["quantization_config"].update(
            {"zero_point": True, "version": "gemm"} if method == "awq" else {"desc_act": False, "sym": False})
    (folder / "config.json").write_text(json.dumps(config))
    return folder
