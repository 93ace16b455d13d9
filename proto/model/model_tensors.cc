#include "proto/model/model_tensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "proto/model/families/families.h"
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

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text = StrCat(text, text.empty() ? "" : ", ", size);
  return StrCat("[", text, "]");
}

// Holds what workers read against the files, and notes it.
class ReadTensorsCheck {
 public:
  ReadTensorsCheck(const fs::path& folder, const v1::Model& model, const Tensors& tensors)
      : folder_(folder), model_(model), tensors_(tensors) {}

  absl::Status Check(const ModelTensor& tensor) {
    absl::Status status;
    for (const TensorPart& part : tensor.parts) {
      status.Update(IsQuantised(part) ? CheckQuantised(part.name)
                                      : CheckPlain(WeightsOf(part), part.shape));
      if (tensor.bias) status.Update(CheckPlain(part.name + ".bias", {part.shape[0]}));
    }
    return status;
  }

  // Names of what was checked.
  const std::set<std::string>& read() const { return read_; }

 private:
  bool IsQuantised(const TensorPart& part) const {
    return part.shape.size() > 1 && tensors_.contains(part.name + ".qweight");
  }

  absl::Status CheckPlain(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      return absl::NotFoundError(
          StrCat(folder_.string(), ": tensor '", name,
                 "' is in none of its safetensors files; the checkpoint is incomplete, or of "
                 "another architecture than config.json says"));
    }
    const SafetensorsEntry& entry = found->second.entry;
    if (!IsFloat(entry.dtype)) return WrongType(model_, found->second);
    if (entry.shape != shape) {
      return absl::InvalidArgumentError(StrCat(found->second.Describe(), " has the shape ",
                                               ShapeText(entry.shape), "; config.json asks for ",
                                               ShapeText(shape)));
    }
    read_.insert(name);
    return absl::OkStatus();
  }

  // Types only: the format knows the shapes.
  absl::Status CheckQuantised(const std::string& matrix) {
    const auto check = [&](std::string_view suffix, const auto& is_usable) {
      const auto found = tensors_.find(StrCat(matrix, suffix));
      if (found == tensors_.end()) return absl::OkStatus();
      if (!model_.has_quantization() || !is_usable(found->second.entry.dtype)) {
        return WrongType(model_, found->second);
      }
      read_.insert(found->first);
      return absl::OkStatus();
    };
    const auto is_word = [](std::string_view dtype) { return dtype == "I32"; };
    absl::Status status = check(".qweight", is_word);
    status.Update(check(".qzeros", is_word));
    status.Update(check(".g_idx", is_word));
    status.Update(check(".scales", [](auto dtype) { return dtype == "F16" || dtype == "BF16"; }));
    return status;
  }

  const fs::path& folder_;
  const v1::Model& model_;
  const Tensors& tensors_;
  std::set<std::string> read_;
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
  const std::string_view root = RootOf(of_family, has);
  const TensorNames names = NamesIn(checked.model, of_family, has, root);
  if (checked.model.tied_embeddings()) {
    if (absl::Status s = CheckTie(names, root, &*tensors, &checked); !s.ok()) return s;
  }
  ReadTensorsCheck check(*folder, checked.model, *tensors);
  const absl::Status status =
      WalkTensors(checked.model, names, root,
                  [&check](const ModelTensor& tensor) { return check.Check(tensor); });
  if (!status.ok()) return status;
  for (const std::string& name : check.read()) tensors->erase(name);
  std::string unread = NameUnread(*folder, *tensors);
  if (!unread.empty()) checked.warnings.push_back(std::move(unread));
  return checked;
}

}  // namespace tessera
