#include "proto/model/model_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/folder_contents.h"
#include "proto/model/gguf_generation.h"
#include "proto/model/gguf_header.h"
#include "proto/model/gguf_model.h"
#include "proto/model/gguf_parts.h"
#include "proto/model/model_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kQuantization[] = "hf_quant_config.json";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status NotAllowed(const fs::path& path) {
  return absl::PermissionDeniedError(
      StrCat("'", path.string(), "': user ", geteuid(),
             ", who runs this program, may not look there; a folder's owner lets others in with "
             "chmod o+rx, all folders on its way included"));
}

fs::path WithoutSlash(const fs::path& folder) {
  std::error_code error;
  const fs::path path = fs::absolute(folder, error).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

// Where huggingface_hub keeps downloads.
fs::path HubCache() {
  if (std::string hub = Environment("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (std::string home = Environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "huggingface" / "hub";
  }
  return fs::path(Environment("HOME")) / ".cache" / "huggingface" / "hub";
}

// What generation_config.json would say beside a GGUF file.
absl::StatusOr<nlohmann::json> GgufGeneration(const fs::path& path) {
  const absl::StatusOr<GgufHeader> header = ReadGgufHeader(FirstGgufPart(path));
  if (!header.ok()) return header.status();
  return GgufGenerationConfig(*header, path.string());
}

// "model" or "organisation/model", of the characters that Hugging Face allows.
bool IsHubName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return !name.empty() && name.size() <= 200 && std::all_of(name.begin(), name.end(), allowed) &&
         std::count(name.begin(), name.end(), '/') <= 1 && name.front() != '/' &&
         name.front() != '.' && name.back() != '/' && name.find("..") == std::string_view::npos;
}

std::string CacheFolderName(std::string_view name) {
  std::string folder = "models--";
  for (char c : name) folder += c == '/' ? std::string("--") : std::string(1, c);
  return folder;
}

// "organisation/model" of a model's folder in the cache; empty: of another folder.
std::string CachedName(const fs::path& folder) {
  constexpr std::string_view kPrefix = "models--";
  std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return {};
  name.erase(0, kPrefix.size());
  if (const size_t dashes = name.find("--"); dashes != std::string::npos)
    name.replace(dashes, 2, "/");
  return IsHubName(name) ? name : std::string();
}

// The revisions of a model in the cache, by name.
std::vector<fs::path> Snapshots(const fs::path& model) {
  std::vector<fs::path> snapshots;
  std::error_code error;
  for (fs::directory_iterator at(model / "snapshots", error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_directory(error)) snapshots.push_back(at->path());
  }
  std::sort(snapshots.begin(), snapshots.end());
  return snapshots;
}

// The snapshot that refs/main points to, or where that file is missing (a copied or partly deleted
// cache, a revision downloaded by its hash) the only one; else an empty path.
fs::path CachedSnapshot(const fs::path& model) {
  absl::StatusOr<std::string> revision = ReadFileText(model / "refs" / "main", 256);
  if (absl::IsNotFound(revision.status())) {
    const std::vector<fs::path> snapshots = Snapshots(model);
    return snapshots.size() == 1 ? snapshots[0] : fs::path();
  }
  if (!revision.ok()) return {};
  while (!revision->empty() && (revision->back() == '\n' || revision->back() == ' ')) {
    revision->pop_back();
  }
  if (revision->empty() || revision->find('/') != std::string::npos) return {};
  std::error_code error;
  const fs::path snapshot = model / "snapshots" / *revision;
  return fs::is_directory(snapshot, error) ? snapshot : fs::path();
}

// Why CachedSnapshot has none. `model`: where the cache has, or would have, the model.
absl::Status NoSnapshot(const fs::path& model, std::string_view name) {
  std::error_code error;
  if (!fs::exists(model, error) && error == std::errc::permission_denied) return NotAllowed(model);
  const std::vector<fs::path> several = Snapshots(model);
  if (several.empty()) {
    return absl::NotFoundError(StrCat("model '", name, "' is no folder, and not in the ",
                                      "Hugging Face cache ", model.parent_path().string(),
                                      "; to download it: hf download ", name));
  }
  if (several.size() == 1) {
    return absl::NotFoundError(
        StrCat("model '", name, "': ", model.string(),
               "/refs/main names a revision that is not there; ", "to download it: hf download ",
               name, "; to take the one that is there give its folder, ", several[0].string()));
  }
  std::string paths;
  for (const fs::path& snapshot : several) paths += StrCat("\n  ", snapshot.string());
  return absl::NotFoundError(StrCat(
      "model '", name, "' is in the Hugging Face cache in ", several.size(), " revisions, and ",
      model.string(), "/refs/main does not say which; give the folder of one:", paths));
}

// A model's folder as huggingface_hub makes it in its cache, above the revisions.
bool IsCachedModel(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "snapshots", error) && !fs::exists(folder / kConfig, error);
}

// {} where the folder has no such file.
absl::StatusOr<nlohmann::json> ReadOptionalJson(const fs::path& path) {
  absl::StatusOr<std::string> text = ReadFileText(path, kMaxJsonBytes);
  if (absl::IsNotFound(text.status())) return nlohmann::json::object();
  if (!text.ok()) return text.status();
  return ParseJsonObject(*text, path.string());
}

absl::Status AddGenerationEosIds(const fs::path& folder, v1::Model* model) {
  const fs::path path = folder / kGenerationConfig;
  absl::StatusOr<nlohmann::json> document = ReadOptionalJson(path);
  if (!document.ok()) return document.status();
  JsonReader reader(*document, path.string());
  for (int64_t id : reader.Integers("eos_token_id", 0, INT32_MAX)) {
    const auto& ids = model->eos_token_ids();
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) model->add_eos_token_ids(id);
  }
  reader.Adopt(CheckEosIds(*model, path.string()));
  return reader.status();
}

// A config.json, and what errors call it.
struct ConfigText {
  std::string text;
  std::string file;
};

// ModelOpt's first checkpoints say beside config.json alone how they are quantised.
absl::Status AddQuantization(const fs::path& folder, ConfigText* config) {
  constexpr const char *kAlgorithm = "quant_algo", *kInside = "quantization";
  const fs::path path = folder / kQuantization;
  absl::StatusOr<nlohmann::json> document = ParseJsonObject(config->text, config->file);
  if (!document.ok()) return document.status();
  for (const nlohmann::json& object : {*document, document->value("text_config", *document)}) {
    for (const char* own : {"quantization_config", "compression_config"}) {
      if (object.is_object() && object.contains(own) && !object.at(own).is_null())
        return absl::OkStatus();
    }
  }
  absl::StatusOr<nlohmann::json> beside = ReadOptionalJson(path);
  if (!beside.ok()) return beside.status();
  JsonReader reader(*beside, path.string());
  if (!reader.Has(kInside) || !reader.At(kInside).is_object()) return absl::OkStatus();
  const nlohmann::json& quantization = reader.At(kInside);
  if (!JsonReader(quantization, path.string()).Has(kAlgorithm)) return absl::OkStatus();
  (*document)["quantization_config"] = quantization;
  *config = {document->dump(), StrCat(config->file, " with ", kQuantization)};
  return absl::OkStatus();
}

// What a model of this folder is called: by its name at Hugging Face, where the folder is a
// revision in the cache.
std::string NameOf(const fs::path& folder) {
  const fs::path path = WithoutSlash(folder);
  if (path.parent_path().filename() == "snapshots") {
    if (std::string name = CachedName(path.parent_path().parent_path()); !name.empty()) return name;
  }
  return path.filename().string();
}

// Named as its file.
absl::StatusOr<v1::Model> ReadNamedGgufModel(const fs::path& path) {
  absl::StatusOr<v1::Model> model = ReadGgufModel(path);
  if (model.ok()) model->set_name(path.stem().string());
  return model;
}

}  // namespace

absl::StatusOr<fs::path> ResolveModelFolder(std::string_view name_or_path) {
  const fs::path path(name_or_path);
  std::error_code error;
  const fs::file_status found = fs::status(path, error);
  if (error == std::errc::permission_denied) return NotAllowed(path);
  if (HasGgufName(name_or_path)) {
    if (fs::is_regular_file(found)) return path;
    return absl::NotFoundError(StrCat("'", name_or_path, "' is no file"));
  }
  if (fs::is_directory(found)) {
    if (!IsCachedModel(path)) return path;
    const fs::path model = WithoutSlash(path);
    if (fs::path snapshot = CachedSnapshot(model); !snapshot.empty()) return snapshot;
    const std::string name = CachedName(model);
    return NoSnapshot(model, name.empty() ? model.filename().string() : name);
  }
  if (fs::exists(found)) {
    return absl::InvalidArgumentError(StrCat(
        "'", name_or_path, "' is a file; give the folder with config.json, or a .gguf file"));
  }
  if (!IsHubName(name_or_path)) {
    return absl::NotFoundError(StrCat("model folder '", name_or_path, "' does not exist"));
  }
  const fs::path model = HubCache() / CacheFolderName(name_or_path);
  if (fs::path snapshot = CachedSnapshot(model); !snapshot.empty()) return snapshot;
  return NoSnapshot(model, name_or_path);
}

absl::StatusOr<v1::Model> ReadModelFolder(std::string_view name_or_path,
                                          std::vector<std::string>* notes) {
  absl::StatusOr<fs::path> folder = ResolveModelFolder(name_or_path);
  if (!folder.ok()) return folder.status();
  if (HasGgufName(folder->string())) return ReadNamedGgufModel(*folder);
  const fs::path path = *folder / kConfig;
  absl::StatusOr<std::string> text = ReadFileText(path, kMaxJsonBytes);
  if (absl::IsNotFound(text.status())) return NoModelIn(*folder);
  if (!text.ok()) return text.status();
  ConfigText config = {*std::move(text), path.string()};
  if (absl::Status s = AddQuantization(*folder, &config); !s.ok()) return s;
  absl::StatusOr<v1::Model> model = ParseModelConfig(config.text, config.file, notes);
  if (!model.ok()) return model.status();
  const absl::Status status = AddGenerationEosIds(*folder, &*model);
  if (!status.ok()) return status;

  std::error_code error;
  model->set_name(fs::is_directory(fs::path(name_or_path), error) ? NameOf(*folder)
                                                                  : std::string(name_or_path));
  return model;
}

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const fs::path& folder) {
  const bool is_gguf = HasGgufName(folder.string());
  const fs::path path = is_gguf ? folder : folder / kGenerationConfig;
  absl::StatusOr<nlohmann::json> document = is_gguf ? GgufGeneration(path) : ReadOptionalJson(path);
  if (!document.ok()) return document.status();
  JsonReader reader(*document, path.string());
  constexpr double kMinPositive = 1e-6;  // where 0 is not allowed
  GenerationDefaults defaults;
  const auto number = [&](const char* key, double min, double max, std::optional<double>& value) {
    if (reader.Has(key)) value = reader.Number(key, min, max);
  };
  number("temperature", 0.0, 100.0, defaults.temperature);
  number("top_p", kMinPositive, 1.0, defaults.top_p);
  number("min_p", 0.0, 1.0, defaults.min_p);
  number("repetition_penalty", kMinPositive, 100.0, defaults.repetition_penalty);
  // Some folders write "off" as -1.
  if (reader.Has("top_k")) {
    defaults.top_k = std::max<int64_t>(0, reader.Integer("top_k", -1, INT32_MAX));
  }
  for (const int64_t id : reader.Integers("suppress_tokens", 0, INT32_MAX))
    defaults.suppress_tokens.push_back(static_cast<int32_t>(id));
  if (!reader.ok()) return reader.status();
  return defaults;
}

}  // namespace tessera
