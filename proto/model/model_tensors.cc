#include "proto/model/model_tensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "proto/activations.h"
#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "proto/model/formats/stored_matrix.h"
#include "proto/model/gguf_header.h"
#include "proto/model/gguf_model.h"
#include "proto/model/gguf_names.h"
#include "proto/model/model_folder.h"
#include "proto/model/safetensors_header.h"
#include "proto/model/tensor_walk.h"
#include "proto/model/weight_files.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// What a warning names of the tensors that are left out.
constexpr size_t kMaxGroups = 8;
constexpr size_t kMaxNameShown = 120;

struct Tensor {
  fs::path file;
  SafetensorsEntry entry;

  std::string Describe() const {
    return StrCat(file.string(), ": tensor '", entry.name.substr(0, kMaxNameShown), "'");
  }
};
using Tensors = std::map<std::string, Tensor>;

// The entries of a safetensors file.
absl::StatusOr<std::vector<SafetensorsEntry>> ReadSafetensors(const fs::path& path) {
  std::error_code error;
  const auto file_bytes = static_cast<int64_t>(fs::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return absl::NotFoundError(StrCat(path.string(), ": cannot be read"));
  // Its length, then all of it; a length that cannot be is left to the parser.
  std::string header(kSafetensorsPrefixBytes, '\0');
  file.read(header.data(), kSafetensorsPrefixBytes);
  header.resize(static_cast<size_t>(file.gcount()));
  const uint64_t bytes = SafetensorsHeaderBytes(header);
  const int64_t most = std::min(kMaxSafetensorsHeaderBytes, file_bytes - kSafetensorsPrefixBytes);
  if (most > 0 && bytes <= static_cast<uint64_t>(most)) {
    header.resize(kSafetensorsPrefixBytes + bytes);
    file.read(header.data() + kSafetensorsPrefixBytes, static_cast<std::streamsize>(bytes));
  }
  return ParseSafetensorsHeader(header, file_bytes, path.string());
}

absl::Status AddFile(const fs::path& path, Tensors* tensors) {
  auto entries = HasGgufName(path.string()) ? ReadGgufTensors(path) : ReadSafetensors(path);
  if (!entries.ok()) return entries.status();
  for (SafetensorsEntry& entry : *entries) {
    std::string name = entry.name;
    const auto [place, is_new] =
        tensors->try_emplace(std::move(name), Tensor{path, std::move(entry)});
    if (is_new) continue;
    return absl::InvalidArgumentError(StrCat(
        place->second.Describe(), " is in ", path.string(),
        " too: which of the two is meant is not known; remove the file that is not the model's"));
  }
  return absl::OkStatus();
}

// Empty where a weight file is not there: who needs it says so.
absl::StatusOr<Tensors> ReadTensors(const fs::path& folder) {
  Tensors tensors;
  const auto paths = WeightFiles(folder);
  if (absl::IsNotFound(paths.status())) return tensors;
  if (!paths.ok()) return paths.status();
  std::error_code error;
  for (const fs::path& path : *paths) {
    if (!fs::exists(path, error)) return tensors;
    if (!fs::is_regular_file(path, error)) {
      return absl::InvalidArgumentError(StrCat(path.string(), ": not a regular file"));
    }
  }
  for (const fs::path& path : *paths) {
    if (absl::Status s = AddFile(path, &tensors); !s.ok()) return s;
  }
  return tensors;
}

// The tensors as formats look them up.
class Directory : public TensorDirectory {
 public:
  Directory(const fs::path& folder, const Tensors& tensors) : folder_(folder), tensors_(tensors) {}
  std::optional<StoredTensor> FindTensor(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    return StoredTensor{found->second.entry.dtype, found->second.entry.shape};
  }
  std::string DescribeTensor(const std::string& name) const override {
    return tensors_.at(name).Describe();
  }
  std::string Place() const override { return folder_.string(); }

 private:
  const fs::path& folder_;
  const Tensors& tensors_;
};

// Holds what workers read against the files, and notes it.
class ReadTensorsCheck {
 public:
  ReadTensorsCheck(const v1::Model& model, const Directory& tensors)
      : quantization_(model.has_quantization() ? &model.quantization() : nullptr),
        tensors_(tensors) {}

  absl::Status Check(const ModelTensor& tensor) {
    absl::Status status;
    std::vector<StoredMatrix> matrices;
    const bool is_table =
        tensor.role == TensorRole::kEmbedding || tensor.role == TensorRole::kPerLayerTable;
    for (const TensorPart& part : tensor.parts) {
      const bool whole = part.whole_name && tensors_.FindTensor(part.name).has_value();
      if ((IsMatrix(tensor.role) || is_table) && !whole) {
        const auto matrix =
            FindMatrix(tensors_, quantization_, part.name, OutputsOf(part), InputsOf(part));
        status.Update(matrix.status());
        if (matrix.ok()) matrices.push_back(*matrix);
      } else {
        status.Update(CheckPlain(WeightsOf(part), part.shape));
      }
      if (tensor.bias) status.Update(CheckPlain(BiasOf(part), {part.shape[0]}));
    }
    // Heads of a latent take theirs apart, and turned.
    NoteRead(matrices, is_table || tensor.role == TensorRole::kLatentHeads);
    CountElements(tensor, matrices);
    return status;
  }

  // Names of what was checked, and of what belongs to it and changes nothing.
  const std::set<std::string>& read() const { return read_; }
  const QuantisedMatrices& quantised() const { return quantised_; }
  const QuantisedMatrices& quantised_on_cpus() const { return quantised_on_cpus_; }
  // In the layer that takes most bytes: what an element takes as a code, and the part of elements
  // that are not kept so. Nothing where all are kept as int4, or none is kept.
  void NoteMixed(v1::Quantization* quantization) const {
    const auto most = std::max_element(layers_.begin(), layers_.end(), [](auto& a, auto& b) {
      return a.second.bytes() < b.second.bytes();
    });
    if (most == layers_.end()) return;
    const LayerElements& layer = most->second;
    if (layer.decoded == 0 && layer.all_int4) return;
    if (quantization->decoded() && layer.code_bytes == 0) {
      quantization->clear_code_bytes();
      return;
    }
    quantization->set_code_bytes(layer.code_bytes / layer.elements);
    quantization->set_decoded_part(layer.decoded / layer.elements);
  }

 private:
  struct LayerElements {
    double elements = 0, decoded = 0, code_bytes = 0;
    bool all_int4 = true;  // of those that are kept
    double bytes() const { return (code_bytes + 2 * decoded) / elements; }
  };

  // Routers and the gates of shared experts are small, and f32 always.
  void CountElements(const ModelTensor& tensor, const std::vector<StoredMatrix>& matrices) {
    const bool small = tensor.role == TensorRole::kRouter || tensor.role == TensorRole::kSharedGate;
    if (tensor.layer < 0 || small || !IsMatrix(tensor.role)) return;
    const bool kept = tensor.role != TensorRole::kLatentHeads &&
                      matrices.size() == tensor.parts.size() &&
                      std::all_of(matrices.begin(), matrices.end(), [&](const auto& matrix) {
                        return matrix.keeps_codes && matrix.as == matrices[0].as;
                      });
    LayerElements& layer = layers_[tensor.layer];
    for (size_t i = 0; i < tensor.parts.size(); ++i) {
      const TensorPart& part = tensor.parts[i];
      const double elements = static_cast<double>(part.rows) * static_cast<double>(InputsOf(part));
      layer.elements += elements;
      if (!kept) {
        layer.decoded += elements;
        continue;
      }
      const double held = matrices[i].held_bytes;
      layer.all_int4 = layer.all_int4 && held == 0;
      layer.code_bytes += elements * (held > 0 ? held : Int4Bytes());
    }
  }

  double Int4Bytes() const {
    return Int4ElementBytes(Int4GroupInputs(quantization_->group_size()));
  }

  absl::Status CheckPlain(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = ExpectFloat(tensors_, name, shape, quantization_ != nullptr);
    if (found.ok()) read_.insert(name);
    return found.status();
  }

  // Matrices that are computed with as one are all kept as codes, or none is.
  void NoteRead(const std::vector<StoredMatrix>& matrices, bool decoded) {
    bool keeps_codes = !decoded, cpus_keep_codes = !decoded;
    for (const StoredMatrix& matrix : matrices) {
      keeps_codes = keeps_codes && matrix.keeps_codes;
      cpus_keep_codes = cpus_keep_codes && (matrix.keeps_codes || matrix.cpus_keep_codes);
    }
    for (const StoredMatrix& matrix : matrices) {
      read_.insert({matrix.scales, matrix.zeros, matrix.order, matrix.state});
      read_.insert(matrix.further.begin(), matrix.further.end());
      const bool is_new = read_.insert(matrix.codes).second;
      if (!is_new || matrix.as == StoredAs::kPlain) continue;
      Count(matrix, keeps_codes, &quantised_);
      Count(matrix, cpus_keep_codes, &quantised_on_cpus_);
    }
  }

  static void Count(const StoredMatrix& matrix, bool keeps_codes, QuantisedMatrices* count) {
    if (keeps_codes) {
      ++count->kept;
      return;
    }
    ++count->decoded;
    count->decoded_weights += matrix.rows * matrix.columns;
    count->decoded_code_bytes += matrix.rows * matrix.columns * matrix.bits / 8;
  }

  const v1::Quantization* const quantization_;
  const Directory& tensors_;
  QuantisedMatrices quantised_, quantised_on_cpus_;
  std::set<std::string> read_;
  std::map<int64_t, LayerElements> layers_;
};

// "model.layers.*.mlp.up_proj.bias": one name for the tensors of all layers.
std::string AcrossLayers(std::string_view name) {
  std::string group;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    const bool number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    group = StrCat(group, number ? "*" : part);
    if (part.size() == name.size()) break;
    group += '.';
    name.remove_prefix(part.size() + 1);
  }
  return group.substr(0, kMaxNameShown);
}

// Changes nothing: follows from config.json, as older checkpoints hold it, or scales of a quantised
// KV cache, which keys and values of 16 bits do without.
bool IsHarmless(std::string_view name) {
  for (const std::string_view end :
       {"rotary_emb.inv_freq", ".k_scale", ".v_scale", ".q_scale", ".kv_scale", ".output_scale"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

// "" where all tensors are read.
std::string NameUnread(const fs::path& folder, const Tensors& unread) {
  std::map<std::string, int64_t> groups;
  int64_t count = 0;
  for (const auto& [name, unused] : unread) {
    if (IsHarmless(name)) continue;
    ++groups[AcrossLayers(name)];
    ++count;
  }
  if (count == 0) return "";
  std::string named;
  size_t shown = 0;
  for (const auto& [group, tensors] : groups) {
    if (++shown > kMaxGroups) break;
    named = StrCat(named, named.empty() ? "" : ", ", group,
                   tensors > 1 ? StrCat(" (", tensors, ")") : std::string());
  }
  if (shown > kMaxGroups) named += ", ...";
  return StrCat(
      folder.string(), ": ", count, count == 1 ? " tensor is" : " tensors are",
      " left out, because this architecture and config.json have no use for them: ", named);
}

// Number of the layer that the name says; -1: it says none.
int64_t LayerIn(std::string_view name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    constexpr size_t kMaxDigits = 9;
    if (!part.empty() && part.size() <= kMaxDigits &&
        part.find_first_not_of("0123456789") == std::string_view::npos) {
      return std::stoll(std::string(part));
    }
    begin = end + 1;
  }
  return -1;
}

// llama.cpp reads every tensor of a GGUF file, so one that is not understood may change the answer.
// Not those of layers behind the model's, which predict further tokens, nor a latent's matrix
// beside its parts.
absl::Status CheckAllRead(const Tensors& unread, const v1::Model& model, const TensorNames& names) {
  for (const auto& [name, tensor] : unread) {
    if (IsHarmless(name) || LayerIn(name) >= LayerCount(model)) continue;
    if (!names.latent.up.empty() && name.ends_with(StrCat(names.latent.up, ".weight"))) continue;
    return absl::InvalidArgumentError(
        StrCat(tensor.Describe(),
               " is not understood, and may change what the model answers: not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> HaveSameBytes(const Tensor& one, const Tensor& other) {
  constexpr int64_t kStep = int64_t{1} << 20;
  std::ifstream files[] = {std::ifstream(one.file, std::ios::binary),
                           std::ifstream(other.file, std::ios::binary)};
  files[0].seekg(one.entry.begin);
  files[1].seekg(other.entry.begin);
  std::string bytes[2];
  for (int64_t left = one.entry.end - one.entry.begin; left > 0; left -= kStep) {
    for (int i = 0; i < 2; ++i) {
      bytes[i].resize(static_cast<size_t>(std::min(left, kStep)));
      if (files[i].read(bytes[i].data(), static_cast<std::streamsize>(bytes[i].size()))) continue;
      return absl::InvalidArgumentError(
          StrCat((i == 0 ? one : other).Describe(), " cannot be read, or is cut off"));
    }
    if (bytes[0] != bytes[1]) return false;
  }
  return true;
}

// transformers ties only where the head is equal to the embedding or is not there.
absl::Status CheckTie(const TensorNames& names, std::string_view root, Tensors* tensors,
                      CheckedModel* checked) {
  const std::string head(names.head);
  const auto table = tensors->find(StrCat(root, names.embedding, ".weight"));
  const auto own = tensors->find(head + ".weight");
  std::string packed;
  for (const char* codes : {".qweight", ".weight_packed"}) {
    if (checked->model.has_quantization() && tensors->contains(head + codes)) packed = head + codes;
  }
  if (table == tensors->end() || (own == tensors->end() && packed.empty())) return absl::OkStatus();
  if (packed.empty()) {
    const SafetensorsEntry &a = own->second.entry, &b = table->second.entry;
    if (a.shape != b.shape) {
      return absl::InvalidArgumentError(
          StrCat(own->second.Describe(), " has another shape than the embedding '", b.name,
                 "', and tie_word_embeddings says that they are one matrix"));
    }
    absl::StatusOr<bool> same = a.dtype == b.dtype;
    if (*same) same = HaveSameBytes(own->second, table->second);
    if (!same.ok()) return same.status();
    if (*same) {
      tensors->erase(own);
      return absl::OkStatus();
    }
  }
  checked->model.set_tied_embeddings(false);
  checked->warnings.push_back(
      StrCat(tensors->begin()->second.file.parent_path().string(),
             ": tie_word_embeddings is true, "
             "but '",
             packed.empty() ? own->first : packed, "' differs from '", table->first,
             "': the head of the files is served, as transformers does; set "
             "tie_word_embeddings to false in config.json to be rid of this warning"));
  return absl::OkStatus();
}

// For a head for further tokens `check` notes what is there; files without any of it have none.
// What is missing of one, who loads it says.
void NoteDraftHead(const TensorNames& names, std::string_view root, const Tensors& tensors,
                   ReadTensorsCheck* check, v1::Model* model) {
  if (!model->has_draft_head()) return;
  bool any = false;
  const absl::Status walked = WalkDraftHead(*model, names, root, [&](const ModelTensor& tensor) {
    if (tensor.role == TensorRole::kEmbedding) return absl::OkStatus();
    any = any || tensors.contains(WeightsOf(tensor.parts[0]));
    (void)check->Check(tensor);
    return absl::OkStatus();
  });
  if (!walked.ok() || !any) model->clear_draft_head();
}

}  // namespace

absl::StatusOr<CheckedModel> ReadCheckedModel(std::string_view name_or_path) {
  const auto folder = ResolveModelFolder(name_or_path);
  if (!folder.ok()) return folder.status();
  CheckedModel checked;
  absl::StatusOr<v1::Model> model = ReadModelFolder(name_or_path, &checked.warnings);
  if (!model.ok()) return model.status();
  checked.model = *std::move(model);
  absl::StatusOr<Tensors> tensors = ReadTensors(*folder);
  if (!tensors.ok()) return tensors.status();
  if (tensors->empty()) return checked;
  const auto has = [&](const std::string& name) { return tensors->contains(name); };
  const TensorNames& of_family = FindFamily(checked.model.architecture())->tensors;
  const TensorNames stored = HasGgufName(folder->string()) ? NamesInGguf(of_family) : of_family;
  const std::string_view root = RootOf(stored, has);
  const TensorNames names = NamesIn(checked.model, stored, has, root);
  if (checked.model.tied_embeddings()) {
    if (absl::Status s = CheckTie(names, root, &*tensors, &checked); !s.ok()) return s;
  }
  const Directory directory(*folder, *tensors);
  ReadTensorsCheck check(checked.model, directory);
  const absl::Status status =
      WalkTensors(checked.model, names, root,
                  [&check](const ModelTensor& tensor) { return check.Check(tensor); });
  if (!status.ok()) return status;
  checked.quantised = check.quantised();
  checked.quantised_on_cpus = check.quantised_on_cpus();
  const bool is_gguf = HasGgufName(folder->string());  // its header said so already
  if (checked.model.has_quantization() && !is_gguf) {
    check.NoteMixed(checked.model.mutable_quantization());
  }
  NoteDraftHead(names, root, *tensors, &check, &checked.model);
  for (const std::string& name : check.read()) tensors->erase(name);
  if (absl::Status s = CheckAllRead(*tensors, checked.model, of_family); is_gguf && !s.ok()) {
    return s;
  }
  std::string unread = NameUnread(*folder, *tensors);
  if (!unread.empty()) checked.warnings.push_back(std::move(unread));
  return checked;
}

}  // namespace tessera
