#include "proto/model/gguf_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "proto/model/families/config_parts.h"
#include "proto/model/families/families.h"
#include "proto/model/gguf_config.h"
#include "proto/model/model_config.h"
#include "proto/model/tensor_walk.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kBlockInputs = 32;  // columns of ranks begin between so many

// Types that workers on every device keep as codes, and the bytes of a weight there with its
// scales: 4 bytes for 32 inputs; of Q4_K 2 bytes for 32 and 4 for 256. GPUs decode Q6_K, whose
// groups of 16 they have no kernel for, so it is planned as if it were decoded everywhere.
struct KeptType {
  std::string_view name;
  double element_bytes;
};
constexpr std::array kKeptTypes = {KeptType{"Q4_0", 0.625}, KeptType{"Q4_1", 0.625},
                                   KeptType{"Q4_K", 0.578125}, KeptType{"Q8_0", 1.125}};

bool IsPlain(std::string_view dtype) { return dtype == "F32" || dtype == "F16" || dtype == "BF16"; }

// A tensor of a layer in GGUF, and where its name stands in a family.
struct LayerSlot {
  std::string_view gguf;  // behind "blk.<index>."
  std::string_view TensorNames::*name;
};

constexpr std::array kSlots = {LayerSlot{"attn_norm", &TensorNames::attention_norm},
                               LayerSlot{"post_attention_norm", &TensorNames::attention_after_norm},
                               LayerSlot{"attn_q", &TensorNames::q},
                               LayerSlot{"attn_k", &TensorNames::k},
                               LayerSlot{"attn_v", &TensorNames::v},
                               LayerSlot{"attn_qkv", &TensorNames::qkv},
                               LayerSlot{"attn_output", &TensorNames::o},
                               LayerSlot{"attn_q_norm", &TensorNames::q_norm},
                               LayerSlot{"attn_k_norm", &TensorNames::k_norm},
                               LayerSlot{"ffn_norm", &TensorNames::ffn_norm},
                               LayerSlot{"post_ffw_norm", &TensorNames::ffn_after_norm},
                               LayerSlot{"ffn_gate", &TensorNames::gate},
                               LayerSlot{"ffn_up", &TensorNames::up},
                               LayerSlot{"ffn_down", &TensorNames::down},
                               LayerSlot{"ffn_gate_inp", &TensorNames::router}};
// Of all experts of a layer in one tensor.
constexpr std::array kExpertSlots = {LayerSlot{"ffn_gate_exps", &TensorNames::expert_gate},
                                     LayerSlot{"ffn_up_exps", &TensorNames::expert_up},
                                     LayerSlot{"ffn_down_exps", &TensorNames::expert_down}};

template <size_t kCount>
const LayerSlot* FindSlot(const std::array<LayerSlot, kCount>& slots, std::string_view name) {
  for (const LayerSlot& slot : slots) {
    if (slot.gguf == name) return &slot;
  }
  return nullptr;
}

// Names of a family's tensors for those of a GGUF file.
class NameMap {
 public:
  explicit NameMap(const Family& family) : facts_(family.gguf), names_(family.tensors) {}

  // "" for a tensor that has no place in the family. `expert` is where a number of an expert goes.
  std::string NameOf(std::string_view gguf, bool* of_experts) const {
    *of_experts = false;
    const size_t dot = gguf.rfind('.');
    if (dot == std::string_view::npos) return "";
    const std::string_view base = gguf.substr(0, dot), suffix = gguf.substr(dot);
    if (base == "token_embd") return StrCat(names_.roots[0], names_.embedding, suffix);
    if (base == "output_norm") return StrCat(names_.roots[0], names_.final_norm, suffix);
    if (base == "output") return StrCat(names_.head, suffix);
    constexpr std::string_view kLayer = "blk.";
    const size_t end = base.find('.', kLayer.size());
    if (!base.starts_with(kLayer) || end == std::string_view::npos) return "";
    const std::string_view index = base.substr(kLayer.size(), end - kLayer.size());
    const std::string place = OfLayer(base.substr(end + 1), of_experts);
    if (place.empty()) return "";
    return StrCat(names_.roots[0], names_.layers, ".", index, ".", place, suffix);
  }

  static constexpr std::string_view kExpertMark = "<expert>";

 private:
  std::string OfLayer(std::string_view name, bool* of_experts) const {
    if (name == facts_.ffn_norm) return std::string(names_.ffn_norm);
    if (name == "ffn_up" && !names_.gate_up.empty()) return std::string(names_.gate_up);
    if (const LayerSlot* slot = FindSlot(kSlots, name)) return std::string(names_.*slot->name);
    const LayerSlot* slot = FindSlot(kExpertSlots, name);
    if (slot == nullptr || names_.experts.empty()) return "";
    *of_experts = true;
    return StrCat(names_.experts, ".", kExpertMark, ".", names_.*slot->name);
  }

  const GgufFacts& facts_;
  const TensorNames& names_;
};

struct Opened {
  GgufHeader header;
  const Family* family = nullptr;
  nlohmann::json config;
};

// The numbers of a small tensor of F32; empty where there is none.
absl::StatusOr<std::vector<double>> ReadNumbers(const fs::path& path, const GgufHeader& header,
                                                std::string_view name) {
  constexpr int64_t kMaxNumbers = 4096;
  std::vector<double> numbers;
  const GgufTensor* tensor = header.FindTensor(name);
  if (tensor == nullptr) return numbers;
  const int64_t count = (tensor->end - tensor->begin) / 4;
  if (tensor->type->name != "F32" || count > kMaxNumbers) {
    return absl::InvalidArgumentError(StrCat(
        path.string(), ": tensor '", name, "' must be F32, of at most ", kMaxNumbers, " numbers"));
  }
  std::ifstream in(path, std::ios::binary);
  in.seekg(tensor->begin);
  for (int64_t i = 0; i < count; ++i) {
    std::array<unsigned char, 4> bytes = {};
    if (!in.read(reinterpret_cast<char*>(bytes.data()), 4)) {
      return absl::InvalidArgumentError(
          StrCat(path.string(), ": tensor '", name, "' cannot be read, or is cut off"));
    }
    const uint32_t bits = static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
                          static_cast<uint32_t>(bytes[2]) << 16 |
                          static_cast<uint32_t>(bytes[3]) << 24;
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

absl::StatusOr<Opened> Open(const fs::path& path) {
  Opened opened;
  absl::StatusOr<GgufHeader> header = ReadGgufHeader(path);
  if (!header.ok()) return header.status();
  opened.header = *std::move(header);
  GgufRopeFactors factors;
  for (const auto& [name, numbers] : {std::pair("rope_freqs.weight", &factors.all),
                                      std::pair("rope_factors_short.weight", &factors.short_),
                                      std::pair("rope_factors_long.weight", &factors.long_)}) {
    auto read = ReadNumbers(path, opened.header, name);
    if (!read.ok()) return read.status();
    *numbers = *std::move(read);
  }
  absl::StatusOr<nlohmann::json> config = GgufConfig(opened.header, factors, path.string());
  if (!config.ok()) return config.status();
  opened.config = *std::move(config);
  opened.family = FindFamily(opened.config["architectures"][0].get<std::string>());
  return opened;
}

constexpr double kDecodedBytes = 2;

// How many elements the matrices of a file have.
struct MatrixCounts {
  std::map<std::string, double> by_type;
  // Of a layer, routers aside.
  struct Layer {
    double elements = 0, decoded = 0, code_bytes = 0;
    double bytes() const { return (code_bytes + kDecodedBytes * decoded) / elements; }
  };
  std::map<int64_t, Layer> layers;
};

// Parts that are computed as one matrix are kept as codes where all are of one type.
MatrixCounts CountMatrices(const std::vector<SafetensorsEntry>& entries, const TensorNames& names,
                           const v1::Model& model) {
  std::map<std::string_view, std::string_view> types;
  for (const SafetensorsEntry& entry : entries) types[entry.name] = entry.dtype;
  MatrixCounts counts;
  const auto count = [&](const ModelTensor& tensor) {
    if (tensor.parts[0].shape.size() < 2) return absl::OkStatus();
    double elements = 0;
    std::set<std::string_view> kinds;
    for (const TensorPart& part : tensor.parts) {
      const auto found = types.find(part.name + ".weight");
      if (found == types.end()) continue;
      const double own = static_cast<double>(part.rows) * static_cast<double>(part.shape[1]);
      elements += own;
      kinds.insert(found->second);
      counts.by_type[std::string(found->second)] += own;
    }
    const bool router =
        tensor.role == TensorRole::kRouter || tensor.role == TensorRole::kSharedGate;
    if (tensor.layer < 0 || router) return absl::OkStatus();
    MatrixCounts::Layer& layer = counts.layers[tensor.layer];
    layer.elements += elements;
    const auto kept = std::find_if(kKeptTypes.begin(), kKeptTypes.end(), [&](const KeptType& type) {
      return kinds == std::set<std::string_view>{type.name};
    });
    if (kept == kKeptTypes.end()) {
      layer.decoded += elements;
    } else {
      layer.code_bytes += elements * kept->element_bytes;
    }
    return absl::OkStatus();
  };
  WalkTensors(model, names, names.roots[0], count).IgnoreError();
  return counts;
}

// What the file keeps as codes, and what the rest is computed in.
void SetTypes(const MatrixCounts& counts, v1::Model* model) {
  double plain = 0;
  bool quantised = false;
  for (const auto& [type, elements] : counts.by_type) {
    quantised = quantised || !IsPlain(type);
    if (!IsPlain(type) || elements <= plain) continue;
    plain = elements;
    model->set_dtype(type == "F32"   ? v1::DATA_TYPE_FLOAT32
                     : type == "F16" ? v1::DATA_TYPE_FLOAT16
                                     : v1::DATA_TYPE_BFLOAT16);
  }
  if (!quantised) return;
  model->set_dtype(v1::DATA_TYPE_BFLOAT16);
  v1::Quantization& quantization = *model->mutable_quantization();
  quantization.set_format(v1::WEIGHT_FORMAT_GGUF);
  quantization.set_group_size(kBlockInputs);
  // A worker's part may be any layers.
  const auto most = std::max_element(
      counts.layers.begin(), counts.layers.end(),
      [](const auto& a, const auto& b) { return a.second.bytes() < b.second.bytes(); });
  if (most == counts.layers.end()) return;
  quantization.set_code_bytes(most->second.code_bytes / most->second.elements);
  quantization.set_decoded_part(most->second.decoded / most->second.elements);
}

std::vector<SafetensorsEntry> EntriesOf(const Opened& opened) {
  const NameMap names(*opened.family);
  std::vector<SafetensorsEntry> entries;
  for (const GgufTensor& tensor : opened.header.tensors) {
    if (tensor.name.starts_with("rope_")) continue;  // is in the config
    bool of_experts = false;
    std::string name = names.NameOf(tensor.name, &of_experts);
    SafetensorsEntry entry = {.name = name.empty() ? tensor.name : name,
                              .dtype = std::string(tensor.type->name),
                              .shape = tensor.shape,
                              .begin = tensor.begin,
                              .end = tensor.end};
    const bool split = of_experts && tensor.shape.size() == 3 && tensor.shape[0] >= 1 &&
                       tensor.shape[0] <= kMaxExperts;
    if (!split) {
      entries.push_back(std::move(entry));
      continue;
    }
    entry.shape.erase(entry.shape.begin());
    const int64_t bytes = (tensor.end - tensor.begin) / tensor.shape[0];
    const size_t mark = name.find(NameMap::kExpertMark);
    for (int64_t i = 0; i < tensor.shape[0]; ++i) {
      entry.name = StrCat(name.substr(0, mark), i, name.substr(mark + NameMap::kExpertMark.size()));
      entry.begin = tensor.begin + i * bytes;
      entry.end = entry.begin + bytes;
      entries.push_back(entry);
    }
  }
  return entries;
}

}  // namespace

TensorNames NamesInGguf(const TensorNames& names) {
  TensorNames in_gguf = names;
  in_gguf.norm_offset = 0;
  in_gguf.qkv_rows = QkvRows::kBlocks;
  return in_gguf;
}

absl::StatusOr<v1::Model> ReadGgufModel(const fs::path& path) {
  absl::StatusOr<Opened> opened = Open(path);
  if (!opened.ok()) return opened.status();
  absl::StatusOr<v1::Model> model = ParseModelConfig(opened->config.dump(), path.string());
  if (!model.ok()) return model.status();
  for (v1::LayerKind& kind : *model->mutable_kinds()) {
    v1::Attention& attention = *kind.mutable_attention();
    if (opened->family->gguf.pairs_rows && attention.has_rope()) {
      attention.mutable_rope()->set_neighbour_pairs(true);
    }
  }
  const TensorNames names = NamesInGguf(opened->family->tensors);
  const std::vector<SafetensorsEntry> entries = EntriesOf(*opened);
  const auto has = [&](const std::string& name) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const SafetensorsEntry& entry) { return entry.name == name; });
  };
  SetTypes(CountMatrices(entries, NamesIn(*model, names, has, names.roots[0]), *model), &*model);
  return model;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ReadGgufTensors(const fs::path& path) {
  absl::StatusOr<Opened> opened = Open(path);
  if (!opened.ok()) return opened.status();
  return EntriesOf(*opened);
}

}  // namespace tessera
