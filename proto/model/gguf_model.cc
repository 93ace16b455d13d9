#include "proto/model/gguf_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "proto/model/families/config_parts.h"
#include "proto/model/families/families.h"
#include "proto/model/gguf_config.h"
#include "proto/model/gguf_names.h"
#include "proto/model/gguf_parts.h"
#include "proto/model/model_config.h"
#include "proto/model/tensor_walk.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kBlockInputs = 32;  // columns of ranks begin between so many

// Types that workers on every device keep as codes, in the same form where `form` is the same, and
// the bytes of a weight there with its scales: 4 bytes for a group's inputs, 32, of Q3_K 16; of
// Q4_K 2 bytes for 32 and 4 for 256, of Q2_K 2 for 16. GPUs decode Q6_K, whose groups of 16 they
// have no kernel for, so it is planned as if it were decoded everywhere.
enum class Form { kInt4, kInt4Thirds, kPairs, kPairsOf256, kPairsOf256Small, kInt8 };
struct KeptType {
  std::string_view name;
  Form form;
  double element_bytes;
};
constexpr std::array kKeptTypes = {KeptType{"Q4_0", Form::kInt4, 0.625},
                                   KeptType{"Q4_1", Form::kPairs, 0.625},
                                   KeptType{"Q3_K", Form::kInt4Thirds, 0.75},
                                   KeptType{"Q4_K", Form::kPairsOf256, 0.578125},
                                   KeptType{"Q2_K", Form::kPairsOf256Small, 0.640625},
                                   KeptType{"Q5_0", Form::kInt8, 1.125},
                                   KeptType{"Q8_0", Form::kInt8, 1.125},
                                   KeptType{"IQ4_NL", Form::kInt8, 1.125},
                                   KeptType{"IQ4_XS", Form::kInt8, 1.125},
                                   KeptType{"MXFP4", Form::kInt8, 1.125}};

const KeptType* FindKeptType(std::string_view name) {
  const auto found = std::find_if(kKeptTypes.begin(), kKeptTypes.end(),
                                  [&](const KeptType& type) { return type.name == name; });
  return found == kKeptTypes.end() ? nullptr : &*found;
}

bool IsPlain(std::string_view dtype) { return dtype == "F32" || dtype == "F16" || dtype == "BF16"; }

// Pairs for 256 inputs are not cut to put heads of inputs in another order.
bool KeepsOrdered(const RowOrder& inputs, Form form) {
  return inputs.IsRange() || (form != Form::kPairsOf256 && form != Form::kPairsOf256Small);
}

struct Opened {
  GgufParts parts;
  const Family* family = nullptr;
  nlohmann::json config;
};

// The numbers of a small tensor of F32; empty where there is none.
absl::StatusOr<std::vector<double>> ReadNumbers(const GgufParts& parts, std::string_view name) {
  constexpr int64_t kMaxNumbers = 4096;
  std::vector<double> numbers;
  const GgufTensor* tensor = parts.whole.FindTensor(name);
  if (tensor == nullptr) return numbers;
  const fs::path& path = parts.files[tensor->file];
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

constexpr std::array kRopeFactors = {"rope_freqs.weight", "rope_factors_short.weight",
                                     "rope_factors_long.weight"};

bool IsRopeFactors(std::string_view tensor) {
  return std::find(kRopeFactors.begin(), kRopeFactors.end(), tensor) != kRopeFactors.end();
}

absl::StatusOr<Opened> Open(const fs::path& path) {
  Opened opened;
  absl::StatusOr<GgufParts> parts = ReadGgufParts(path);
  if (!parts.ok()) return parts.status();
  opened.parts = *std::move(parts);
  GgufRopeFactors factors;
  const std::array numbers = {&factors.all, &factors.short_, &factors.long_};
  for (size_t i = 0; i < kRopeFactors.size(); ++i) {
    auto read = ReadNumbers(opened.parts, kRopeFactors[i]);
    if (!read.ok()) return read.status();
    *numbers[i] = *std::move(read);
  }
  absl::StatusOr<nlohmann::json> config =
      GgufConfig(opened.parts.whole, factors, opened.parts.files[0].string());
  if (!config.ok()) return config.status();
  opened.config = *std::move(config);
  opened.family = FindFamily(opened.config["architectures"][0].get<std::string>());
  return opened;
}

// llama.cpp turns halves of what has rotations of images, so its converter puts rows of pairs into
// that order (GLM-4.1V: conversion/glm.py).
bool HasRopeSections(const GgufHeader& header) {
  const auto* arch = header.Find<std::string>("general.architecture");
  const auto* sections =
      header.Find<std::vector<int64_t>>(StrCat(*arch, ".rope.dimension_sections"));
  return sections != nullptr &&
         std::any_of(sections->begin(), sections->end(), [](int64_t pairs) { return pairs > 0; });
}

constexpr double kDecodedBytes = 2;

// How many elements the matrices of a file have.
struct MatrixCounts {
  std::map<std::string, double> by_type;
  // The tensors of a layer, routers aside.
  struct Layer {
    double elements = 0, decoded = 0, code_bytes = 0;
    double bytes() const { return (code_bytes + kDecodedBytes * decoded) / elements; }
  };
  std::map<int64_t, Layer> layers;
};

// Parts that are computed as one matrix are kept as codes where all are kept alike.
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
    const KeptType* kept = kinds.empty() ? nullptr : FindKeptType(*kinds.begin());
    const bool alike = kept != nullptr &&
                       std::all_of(kinds.begin(), kinds.end(),
                                   [&](auto name) {
                                     const KeptType* type = FindKeptType(name);
                                     return type != nullptr && type->form == kept->form;
                                   }) &&
                       KeepsOrdered(tensor.parts[0].inputs, kept->form);
    if (alike && tensor.role != TensorRole::kLatentHeads) {
      layer.code_bytes += elements * kept->element_bytes;
    } else {
      layer.decoded += elements;
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

// One matrix an expert, or two, one below the other.
void AddExperts(const GgufTensor& tensor, const GgufPlace& place,
                std::vector<SafetensorsEntry>* entries) {
  const int64_t halves = !place.second.empty() && tensor.shape[1] % 2 == 0 ? 2 : 1;
  const int64_t count = halves * tensor.shape[0], bytes = (tensor.end - tensor.begin) / count;
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view name = i % halves == 0 ? place.name : place.second;
    const size_t mark = name.find(kGgufExpertMark);
    entries->push_back({.name = StrCat(name.substr(0, mark), i / halves,
                                       name.substr(mark + kGgufExpertMark.size())),
                        .dtype = std::string(tensor.type->name),
                        .shape = {tensor.shape[1] / halves, tensor.shape[2]},
                        .begin = tensor.begin + i * bytes,
                        .end = tensor.begin + (i + 1) * bytes});
  }
}

// In the file of that number; all: of all files.
std::vector<SafetensorsEntry> EntriesOf(const Opened& opened, std::optional<size_t> file) {
  std::vector<SafetensorsEntry> entries;
  for (const GgufTensor& tensor : opened.parts.whole.tensors) {
    if (file.has_value() && tensor.file != *file) continue;
    if (IsRopeFactors(tensor.name)) continue;  // is in the config
    const GgufPlace place = PlaceInFamily(*opened.family, tensor.name);
    SafetensorsEntry entry = {.name = place.name.empty() ? tensor.name : place.name,
                              .dtype = std::string(tensor.type->name),
                              .shape = tensor.shape,
                              .begin = tensor.begin,
                              .end = tensor.end};
    std::vector<int64_t>& shape = entry.shape;
    if (place.dimensions == 1 && shape.size() == 2 && shape[0] == 1) shape.erase(shape.begin());
    if (place.dimensions == 2 && shape.size() == 1) shape.insert(shape.begin(), 1);
    if (place.dimensions == 2 && shape.size() == 3) shape = {shape[0] * shape[1], shape[2]};
    if (place.dimensions == 3 && shape.size() == 2) shape.insert(shape.begin() + 1, 1);
    const bool split =
        place.of_experts && shape.size() == 3 && shape[0] >= 1 && shape[0] <= kMaxExperts;
    if (!split) {
      entries.push_back(std::move(entry));
      continue;
    }
    AddExperts(tensor, place, &entries);
  }
  return entries;
}

}  // namespace

absl::StatusOr<v1::Model> ReadGgufModel(const fs::path& path) {
  absl::StatusOr<Opened> opened = Open(path);
  if (!opened.ok()) return opened.status();
  absl::StatusOr<v1::Model> model = ParseModelConfig(opened->config.dump(), path.string());
  if (!model.ok()) return model.status();
  const bool sections = HasRopeSections(opened->parts.whole);
  for (v1::LayerKind& kind : *model->mutable_kinds()) {
    if (!kind.has_attention() || !kind.attention().has_rope()) continue;
    v1::Rope& rope = *kind.mutable_attention()->mutable_rope();
    if (opened->family->gguf.pairs_rows) rope.set_neighbour_pairs(true);
    if (sections) rope.set_neighbour_pairs(false);
  }
  const TensorNames names = NamesInGguf(opened->family->tensors);
  const std::vector<SafetensorsEntry> entries = EntriesOf(*opened, std::nullopt);
  const auto has = [&](const std::string& name) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const SafetensorsEntry& entry) { return entry.name == name; });
  };
  SetTypes(CountMatrices(entries, NamesIn(*model, names, has, names.roots[0]), *model), &*model);
  return model;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ReadGgufTensors(const fs::path& path) {
  absl::StatusOr<Opened> opened = Open(FirstGgufPart(path));
  if (!opened.ok()) return opened.status();
  const std::vector<fs::path>& files = opened->parts.files;
  const auto found = std::find(files.begin(), files.end(), path);
  return EntriesOf(*opened, static_cast<size_t>(found - files.begin()));
}

}  // namespace tessera
