"""The recipes of docs/adding.md stay as narrow as they say: a model family is one product file and its
place in the list, a weight format is a file where it is described, one where it is read, and a line in
the table of either, and a transport of KV is in the files that its recipe names. What README.md and docs/
name is there. Golden models, which a recipe adds to, stay small."""

import json
import pathlib
import re

# The checkout that this test was built from: Bazel's runfiles are links to it.
ROOT = pathlib.Path("WORKSPACE").resolve().parent
PRODUCT = ("coordinator", "deploy", "kernels", "kvcache", "proto", "scheduler", "worker")
FAMILIES = "proto/model/families/"
# GGUF has one architecture for both, and the file says which it is.
NAMED_BY = {"kDeepseekV3": {FAMILIES + "deepseek_v2.cc"}, "kOlmo3": {FAMILIES + "olmo2.cc"}}
FORMATS = "proto/model/formats/"
WEIGHTS = "worker/weights/"


def read_sources():
    """Path -> text without comments, of all product sources."""
    sources = {}
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".cc", ".h", ".cu", ".cuh"):
                text = path.read_text(encoding="utf-8")
                sources[path.relative_to(ROOT).as_posix()] = re.sub(r"//[^\n]*", "", text)
    return sources


SOURCES = read_sources()


def files_with(word):
    return {name for name, text in SOURCES.items()
            if word in text and re.search(rf"\b{word}\b", text)}


def families():
    """(file, symbol, class in config.json) of each family."""
    return [(name, symbol, class_name) for name, text in SOURCES.items()
            for symbol, class_name in re.findall(
                r'^extern const Family (\w+) = \{\.architecture = "(\w+)"', text, re.M)]


def test_a_family_is_one_file_and_its_place_in_the_list():
    assert len(families()) >= 7
    for name, symbol, class_name in families():
        assert files_with(symbol) - NAMED_BY.get(symbol, set()) == {name, FAMILIES + "families.cc"}, symbol
        assert files_with(class_name) == {name}, class_name


def test_each_family_has_a_golden_checkpoint():
    golden = set()
    for path in (ROOT / "tests/golden/models").glob("*/config.json"):
        golden.update(json.loads(path.read_text())["architectures"])
    for _, _, class_name in families():
        assert class_name in golden, class_name


def test_a_weight_format_is_a_file_where_it_is_described_one_where_it_is_read_and_their_lines():
    described = [(name, symbol) for name, text in SOURCES.items()
                 for symbol in re.findall(r"^extern const MatrixFormat (\w+) = ", text, re.M)]
    assert len(described) >= 3
    for name, symbol in described:
        assert files_with(symbol) == {name, FORMATS + "formats.cc"}, symbol
    openers = re.findall(r"\.open = (Open\w+)", SOURCES[WEIGHTS + "weight_formats.cc"])
    assert openers
    for opener in openers:
        files = files_with(opener)
        own = [name for name in files if name.endswith("_rows.cc")]
        assert len(own) == 1, (opener, files)
        assert files == {own[0], own[0][:-2] + "h", WEIGHTS + "weight_formats.cc"}, opener


def test_a_method_is_read_in_the_file_of_its_format():
    readers = re.findall(r"\.read = (Read\w+)", SOURCES[FORMATS + "formats.cc"])
    assert len(readers) >= 6
    for reader in readers:
        own = files_with(reader) - {FORMATS + "formats.cc", FORMATS + "methods.h"}
        assert len(own) == 1 and own.pop().startswith(FORMATS), reader


def test_transports_of_kv_are_in_the_files_that_their_recipe_names():
    recipe = (ROOT / "docs/adding.md").read_text().split("## A transport of keys and values")[1]
    named = {path.removesuffix(".cc") for path in re.findall(r"`((?:worker|coordinator)/[\w/.]+)`", recipe)}
    assert len(named) >= 5
    beyond = {name.rsplit(".", 1)[0] for name in files_with("KvTransport")} - named
    assert not beyond, beyond


def stems(names):
    return {name.rsplit(".", 1)[0] for name in names}


def recipe(title):
    """Paths without suffix that a recipe of docs/adding.md names."""
    text = (ROOT / "docs/adding.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    return {re.sub(r"\.(cc|h|cu|proto)$", "", path)
            for path in re.findall(rf"`((?:{'|'.join(PRODUCT)})/[\w/.]+)`", text)}


def test_a_sampling_parameter_is_in_the_files_that_its_recipe_names():
    files = stems(files_with("min_p") | files_with("set_min_p"))
    assert len(files) > 15
    assert not files - recipe("A sampling parameter"), files - recipe("A sampling parameter")


def test_a_type_of_the_kv_cache_is_in_the_files_that_its_recipe_names():
    files = stems(files_with("DATA_TYPE_FP8") | files_with("HasKvScales"))
    assert len(files) > 12
    assert not files - recipe("A type of the KV cache"), files - recipe("A type of the KV cache")


def test_a_codec_is_in_the_files_that_its_recipe_names():
    files = stems(files_with("KV_CODEC_INT4") | {name for name, text in SOURCES.items() if "KvCodec::kInt4" in text})
    assert len(files) > 8
    assert not files - recipe("A codec of keys and values on their way"), files


def test_codes_that_a_device_keeps_are_known_where_the_recipe_of_a_format_says():
    files = stems({name for word in ("kMxfp4", "WEIGHT_FORMAT_MXFP4") for name in files_with(word)} |
                  {name for name, text in SOURCES.items() if '"mxfp4"' in text})
    own = {FORMATS + "mxfp4", WEIGHTS + "mxfp4_rows", FORMATS + "formats", FORMATS + "stored_matrix",
           WEIGHTS + "weight_formats"}  # the recipe names these by FORMAT, and in their folder
    assert len(files - own) >= 6
    assert not files - own - recipe("A weight format"), files - own - recipe("A weight format")


def test_a_maker_of_devices_is_a_folder_and_a_line_in_the_table():
    """No other file knows how --device names its devices, but for those of its kernels."""
    table = "worker/device_types.cc"
    types = re.findall(r"&(k\w+),", SOURCES[table])
    assert len(types) >= 4
    for symbol in types:
        own = {str(pathlib.Path(name).with_suffix("")) for name in files_with(symbol) - {table}}
        assert len(own) == 1 and own.pop().startswith("worker/devices/"), symbol
    names = {
        '"cuda:': {"worker/devices/cuda/cuda_devices", "kernels/cuda/driver/gpu_list", "deploy/gpu_check"},
        '"cuda-emulated': {"proto/device_names", "worker/devices/cuda/emulated_cuda", "kernels/cuda/device/cuda_ops",
                           "deploy/gpu_check", "scheduler/input/runtime_reserve"},
        '"cpu"': {"proto/device_names", "worker/devices/cpu/cpu_devices", "scheduler/input/runtime_reserve"},
        '"emulated:': {"proto/emulated_kind", "worker/devices/rehearsed_devices"},
    }
    for literal, known in names.items():
        files = {str(pathlib.Path(name).with_suffix("")) for name, text in SOURCES.items() if literal in text}
        assert files == known, (literal, files)


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_names_of_data_types_stand_once():
    """Kernels, which know no messages, have theirs; the rates of a device are kept by name."""
    folders = ("coordinator/", "deploy/", "proto/", "worker/")
    assert {name for name, text in SOURCES.items() if name.startswith(folders) and '"bfloat16"' in text} == {
        "proto/data_types.h"}


def test_an_object_says_what_it_can_do():
    """A question with a default, not a look at its class."""
    assert not files_with("dynamic_cast")


def test_documents_link_to_what_is_there():
    """Links, and paths in code marks whose first part is a folder of the checkout."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    checked = 0
    for document in documents():
        text = document.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)", text):
            if "://" in target:
                continue
            assert (document.parent / target).exists(), (document.name, target)
            checked += 1
        for path in re.findall(r"`([\w.-]+/[\w./-]*)`", text):
            if path.split("/")[0] not in folders or path.startswith(("bazel-", ".cache/")):
                continue
            if re.search("FAMILY|FORMAT|MAKER", path):
                continue
            found = (ROOT / path).exists() or list((ROOT / path).parent.glob(pathlib.Path(path).name + ".*"))
            assert found, (document.name, path)
            checked += 1
    assert checked > 60, checked


def test_changes_begin_with_the_version_that_programs_print():
    printed = re.search(r'return "([\d.]+)\+', (ROOT / "proto/BUILD.bazel").read_text(encoding="utf-8"))
    newest = re.search(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert printed and newest and printed[1] == newest[1], (printed, newest)


def test_readme_fits_on_three_screens():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


def test_golden_models_stay_small():
    """Each checkout has all of them: a model as small as shows its part, in 16 bits, with short prompts."""
    most = 10_000_000
    sizes = {path: path.stat().st_size for path in (ROOT / "tests/golden/models").rglob("*")
             if path.is_file() and "__pycache__" not in path.parts}
    assert len(sizes) > 100
    largest = sorted(sizes, key=sizes.get)[-5:]
    assert sum(sizes.values()) <= most, (sum(sizes.values()), [str(path) for path in largest])
