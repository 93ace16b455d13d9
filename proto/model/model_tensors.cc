#include "proto/model/model_tensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "proto/layers/layers.h"
#include "proto/model/families/families.h"
#include "proto/model/model_folder.h"
#include "proto/model/safetensors_header.h"
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

absl::Status AddFile(const fs::path& path, Tensors* tensors) {
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
  auto entries = ParseSafetensorsHeader(header, file_bytes, path.string());
  if (!entries.ok()) return entries.status();
  for (SafetensorsEntry& entry : *entries) {
    std::string name = entry.name;
    tensors->try_emplace(std::move(name), Tensor{path, std::move(entry)});
  }
  return absl::OkStatus();
}

// Empty where a weight file is not there: who needs it says so.
absl::StatusOr<Tensors> ReadTensors(const fs::path& folder) {
  Tensors tensors;
  const auto names = WeightFiles(folder);
  if (absl::IsNotFound(names.status())) return tensors;
  if (!names.ok()) return names.status();
  std::error_code error;
  for (const std::string& name : *names) {
    if (!fs::exists(folder / name, error)) return tensors;
  }
  for (const std::string& name : *names) {
    if (absl::Status s = AddFile(folder / name, &tensors); !s.ok()) return s;
  }
  return tensors;
}

bool IsFloat(std::string_view dtype) { return dtype == "F32" || dtype == "F16" || dtype == "BF16"; }

absl::Status WrongType(const v1::Model& model, const Tensor& tensor) {
  return absl::InvalidArgumentError(
      StrCat(tensor.Describe(), " is ", tensor.entry.dtype,
             model.has_quantization() ? "" : ", and config.json has no quantization_config",
             ": weights must be F32, F16 or BF16, or int4 as AWQ and GPTQ write them; use such a "
             "checkpoint, or the original one, with --quantization int8 if memory is short"));
}

// Checks the types of what workers read, and removes it.
absl::Status TakeRead(const v1::Model& model, const std::set<std::string>& read, Tensors* tensors) {
  const auto take = [&](const std::string& name, const auto& is_usable) {
    const auto found = tensors->find(name);
    if (found == tensors->end()) return absl::OkStatus();
    if (!is_usable(found->second.entry.dtype)) return WrongType(model, found->second);
    tensors->erase(found);
    return absl::OkStatus();
  };
  const auto is_word = [](std::string_view dtype) { return dtype == "I32"; };
  for (const std::string& name : read) {
    constexpr std::string_view kWeight = ".weight";
    if (absl::Status s = take(name, IsFloat); !s.ok()) return s;
    if (!model.has_quantization() || !name.ends_with(kWeight)) continue;
    const std::string matrix = name.substr(0, name.size() - kWeight.size());
    if (!tensors->contains(matrix + ".qweight")) continue;
    absl::Status status = take(matrix + ".qweight", is_word);
    status.Update(take(matrix + ".qzeros", is_word));
    status.Update(take(matrix + ".g_idx", is_word));
    status.Update(take(matrix + ".scales", [](auto t) { return t == "F16" || t == "BF16"; }));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

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

// "" where all tensors are read.
std::string NameUnread(const fs::path& folder, const Tensors& unread) {
  std::map<std::string, int64_t> groups;
  int64_t count = 0;
  for (const auto& [name, unused] : unread) {
    // Follows from config.json; older checkpoints hold it.
    if (name.ends_with("rotary_emb.inv_freq")) continue;
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
  const bool int4 = checked->model.has_quantization() && tensors->contains(head + ".qweight");
  if (table == tensors->end() || (own == tensors->end() && !int4)) return absl::OkStatus();
  if (!int4) {
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
             head, int4 ? ".qweight" : ".weight", "' differs from '", table->first,
             "': the head of the files is served, as transformers does; set "
             "tie_word_embeddings to false in config.json to be rid of this warning"));
  return absl::OkStatus();
}

// Walks over a model and names its tensors.
class TensorList {
 public:
  TensorList(const v1::Model& model, const TensorNames& names, std::string_view root)
      : model_(model), names_(names), root_(root) {}

  std::set<std::string> Take() {
    Add(StrCat(root_, names_.embedding), false);
    if (model_.learned_positions()) Add(StrCat(root_, names_.positions), false);
    if (model_.embedding_width() != model_.hidden()) {
      Add(StrCat(root_, names_.project_in), false);
      Add(StrCat(root_, names_.project_out), false);
    }
    if (!model_.final_norm_absent()) AddNorm(StrCat(root_, names_.final_norm));
    if (!model_.tied_embeddings()) Add(std::string(names_.head), false);
    for (int64_t i = 0; i < LayerCount(model_); ++i) {
      const std::string prefix = StrCat(root_, names_.layers, ".", i, ".");
      const v1::LayerKind& kind = KindOf(model_, i);
      AddNorms(prefix, kind);
      AddAttention(prefix, kind.attention());
      if (kind.ffn().has_experts()) {
        AddExperts(prefix, kind.ffn().experts());
      } else {
        AddDenseFfn(prefix, kind.ffn());
      }
    }
    return std::move(tensors_);
  }

 private:
  void Add(const std::string& name, bool bias) {
    tensors_.insert(name + ".weight");
    if (bias) tensors_.insert(name + ".bias");
  }
  void AddNorm(const std::string& name) { Add(name, model_.norm() == v1::NORM_KIND_LAYER); }

  void AddNorms(const std::string& prefix, const v1::LayerKind& kind) {
    const v1::NormPlace place = kind.norm_place();
    if (place != v1::NORM_PLACE_AFTER) {
      AddNorm(StrCat(prefix, names_.attention_norm));
      if (!kind.shared_norm()) AddNorm(StrCat(prefix, names_.ffn_norm));
    }
    if (place != v1::NORM_PLACE_AFTER && place != v1::NORM_PLACE_BOTH) return;
    AddNorm(StrCat(prefix, names_.attention_after_norm));
    AddNorm(StrCat(prefix, names_.ffn_after_norm));
  }

  void AddAttention(const std::string& prefix, const v1::Attention& attention) {
    for (const auto name : {names_.q, names_.k, names_.v, names_.qkv}) {
      if (name.empty() || (!names_.qkv.empty() && name != names_.qkv)) continue;
      Add(StrCat(prefix, name), attention.qkv_bias());
    }
    Add(StrCat(prefix, names_.o), attention.output_bias());
    if (!attention.qk_norm()) return;
    Add(StrCat(prefix, names_.q_norm), false);
    Add(StrCat(prefix, names_.k_norm), false);
  }

  void AddDenseFfn(const std::string& prefix, const v1::Ffn& ffn) {
    if (!names_.gate_up.empty()) {
      Add(StrCat(prefix, names_.gate_up), ffn.bias());
    } else {
      if (ffn.gated()) Add(StrCat(prefix, names_.gate), ffn.bias());
      Add(StrCat(prefix, names_.up), ffn.bias());
    }
    Add(StrCat(prefix, names_.down), ffn.bias());
  }

  void AddExperts(const std::string& prefix, const v1::Experts& experts) {
    Add(StrCat(prefix, names_.router), false);
    for (int64_t i = 0; i < experts.count(); ++i) {
      const std::string expert = StrCat(prefix, names_.experts, ".", i, ".");
      for (const auto name : {names_.expert_gate, names_.expert_up, names_.expert_down}) {
        Add(StrCat(expert, name), false);
      }
    }
  }

  const v1::Model& model_;
  const TensorNames& names_;
  const std::string_view root_;
  std::set<std::string> tensors_;
};

}  // namespace

std::set<std::string> TensorsOf(const v1::Model& model, const TensorNames& names,
                                std::string_view root) {
  return TensorList(model, names, root).Take();
}

absl::StatusOr<CheckedModel> ReadCheckedModel(std::string_view name_or_path) {
  const auto folder = ResolveModelFolder(name_or_path);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<v1::Model> model = ReadModelFolder(name_or_path);
  if (!model.ok()) return model.status();
  CheckedModel checked = {.model = *std::move(model), .warnings = {}};
  absl::StatusOr<Tensors> tensors = ReadTensors(*folder);
  if (!tensors.ok()) return tensors.status();
  if (tensors->empty()) return checked;
  const auto has = [&](const std::string& name) { return tensors->contains(name); };
  TensorNames names = FindFamily(checked.model.architecture())->tensors;
  const std::string_view root = RootOf(names, has);
  names.head = HeadOf(names, has);
  if (checked.model.tied_embeddings()) {
    if (absl::Status s = CheckTie(names, root, &*tensors, &checked); !s.ok()) return s;
  }
  const std::set<std::string> read = TensorsOf(checked.model, names, root);
  if (absl::Status s = TakeRead(checked.model, read, &*tensors); !s.ok()) return s;
  std::string unread = NameUnread(*folder, *tensors);
  if (!unread.empty()) checked.warnings.push_back(std::move(unread));
  return checked;
}

}  // namespace tessera
