#include "proto/model/folder_contents.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNamed = 4;

bool Has(const fs::path& folder, const char* name) {
  std::error_code error;
  return fs::exists(folder / name, error);
}

// Names in the folder, in order, of which there may be many: no more than these are looked at.
std::vector<fs::path> EntriesOf(const fs::path& folder) {
  constexpr size_t kMaxEntries = 10'000;
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (entries.size() == kMaxEntries) break;
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// GGUF files of language models, of those in several parts the first: what a command may be given.
std::vector<std::string> GgufNamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& entry : EntriesOf(folder)) {
    const std::string name = entry.filename().string();
    const bool later_part =
        name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (HasGgufName(name) && !later_part && !name.starts_with("mmproj")) names.push_back(name);
  }
  return names;
}

std::string Named(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMaxNamed; ++i) {
    text += StrCat(text.empty() ? "" : ", ", names[i].substr(0, 120));
  }
  return names.size() > kMaxNamed ? text + ", ..." : text;
}

std::string AdapterText(const fs::path& folder) {
  std::string base;
  const fs::path path = folder / "adapter_config.json";
  if (const auto text = ReadFileText(path, kMaxJsonBytes); text.ok()) {
    if (const auto document = ParseJsonObject(*text, path.string()); document.ok()) {
      base = JsonReader(*document, path.string()).StringOr("base_model_name_or_path", "");
    }
  }
  return StrCat("an adapter (LoRA)",
                base.empty() ? std::string() : StrCat(" of '", base.substr(0, 120), "'"),
                ", not a model; merge it into its model (merge_and_unload of peft), save that, and "
                "give its folder");
}

// "" where no folder in this one is a model, or holds GGUF files.
std::string FolderWithin(const fs::path& folder) {
  std::error_code error;
  for (const fs::path& entry : EntriesOf(folder)) {
    if (!fs::is_directory(entry, error)) continue;
    if (Has(entry, "config.json")) return entry.string();
    const std::vector<std::string> files = GgufNamesIn(entry);
    if (!files.empty()) return (entry / files[0]).string();
  }
  return "";
}

}  // namespace

absl::Status NoModelIn(const fs::path& folder) {
  const auto none = [&](const std::string& text) {
    return absl::NotFoundError(StrCat(folder.string(), ": no config.json", text));
  };
  if (Has(folder, "adapter_config.json")) {
    return absl::NotFoundError(StrCat((folder / "adapter_config.json").string(),
                                      ": the folder holds ", AdapterText(folder)));
  }
  if (Has(folder, "model_index.json")) {
    return none("; the folder holds a Diffusers pipeline (model_index.json), no language model");
  }
  if (const std::vector<std::string> files = GgufNamesIn(folder); files.size() == 1) {
    return none(StrCat("; give the file in place of the folder: ", (folder / files[0]).string()));
  } else if (!files.empty()) {
    return none(
        StrCat("; the folder holds GGUF files: give one of them in its place: ", Named(files)));
  }
  if (Has(folder, "params.json")) {
    return none(
        ", but a params.json: a checkpoint in its publisher's own form; download the files of the "
        "Hugging Face form (config.json, model*.safetensors), or a GGUF file");
  }
  if (const std::string within = FolderWithin(folder); !within.empty()) {
    return none(StrCat("; give what is in it: ", within));
  }
  std::error_code error;
  return none(fs::is_empty(folder, error) ? ": the folder is empty"
                                          : "; the download may be incomplete");
}

absl::Status CheckTokenizerFiles(const fs::path& model) {
  if (HasGgufName(model.string())) return absl::OkStatus();
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model"}) {
    if (Has(model, name)) return absl::OkStatus();
  }
  if (Has(model, "vocab.json") && Has(model, "merges.txt")) return absl::OkStatus();
  for (const fs::path& entry : EntriesOf(model)) {
    if (entry.extension() == ".tiktoken") return absl::OkStatus();
  }
  return absl::NotFoundError(
      StrCat(model.string(),
             ": no tokenizer (looked for tokenizer.json, tokenizer.model, vocab.json with "
             "merges.txt, tekken.json, tiktoken.model)"));
}

}  // namespace tessera
