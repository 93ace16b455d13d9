"""Changes make.py's folders: tensors under other names, or stored in another order."""
import json

import safetensors.torch


def rename_tensors(folder, old, new):
    for file in folder.glob("*.safetensors"):
        tensors = safetensors.torch.load_file(file)
        safetensors.torch.save_file({new + n.removeprefix(old) if n.startswith(old) else n: t
                                     for n, t in tensors.items()}, file)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        content = json.loads(index.read_text())
        content["weight_map"] = {new + n.removeprefix(old) if n.startswith(old) else n: f
                                 for n, f in content["weight_map"].items()}
        index.write_text(json.dumps(content, indent=1))


def turn_experts(file):
    """Experts in one tensor with inputs before outputs, as they are published."""
    tensors = safetensors.torch.load_file(file)
    safetensors.torch.save_file({n: t.transpose(1, 2).contiguous() if ".experts." in n else t
                                 for n, t in tensors.items()}, file, {"format": "pt"})
