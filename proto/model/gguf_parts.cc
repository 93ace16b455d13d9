#include "proto/model/gguf_parts.h"

#include <set>
#include <string>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 5;
constexpr int64_t kMaxParts = 1000;  // far above any published model

// "-00002-of-00003.gguf"
struct PartName {
  std::string before;
  int64_t number = 0, count = 0;  // from 1
};

// `text` is five digits; else 0.
int64_t Number(std::string_view text) {
  int64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return 0;
    number = 10 * number + (c - '0');
  }
  return number;
}

// Numbers are 0 where the name is none of a part.
PartName NameOf(const fs::path& path) {
  constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
  const std::string name = path.filename().string();
  const size_t length = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (!name.ends_with(kEnd) || name.size() < length) return {};
  const size_t begin = name.size() - length;
  const std::string_view end = std::string_view(name).substr(begin);
  if (end[0] != '-' || end.substr(1 + kDigits, kOf.size()) != kOf) return {};
  PartName part = {.before = name.substr(0, begin),
                   .number = Number(end.substr(1, kDigits)),
                   .count = Number(end.substr(1 + kDigits + kOf.size(), kDigits))};
  const bool possible = part.number >= 1 && part.number <= part.count && part.count <= kMaxParts;
  return possible ? part : PartName{};
}

std::string Padded(int64_t number) {
  const std::string text = std::to_string(number);
  return StrCat(std::string(kDigits - text.size(), '0'), text);
}

fs::path PartFile(const fs::path& path, const PartName& name, int64_t number) {
  return path.parent_path() /
         StrCat(name.before, "-", Padded(number), "-of-", Padded(name.count), ".gguf");
}

// The key's number is the one that is expected.
absl::Status Expect(const GgufHeader& header, const fs::path& file, std::string_view key,
                    int64_t expected, std::string_view hint) {
  const auto* found = header.Find<int64_t>(key);
  if (found != nullptr && *found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(file.string(), ": key '", key, "' ",
             found == nullptr ? std::string("is missing or no number") : StrCat("is ", *found),
             ", not ", expected, ": ", hint));
}

// Adds part `index` of `parts`.
absl::Status AddPart(size_t index, GgufParts* parts, std::set<std::string>* names) {
  const fs::path& file = parts->files[index];
  absl::StatusOr<GgufHeader> header = ReadGgufHeader(file);
  if (absl::IsNotFound(header.status())) {
    return absl::NotFoundError(StrCat(file.string(), ": is missing; all ", parts->files.size(),
                                      " files of the model must be beside each other"));
  }
  if (!header.ok()) return header.status();
  constexpr std::string_view kHint = "the files are not parts of one model, or were renamed";
  absl::Status status = Expect(*header, file, "split.no", static_cast<int64_t>(index), kHint);
  status.Update(
      Expect(*header, file, "split.count", static_cast<int64_t>(parts->files.size()), kHint));
  if (!status.ok()) return status;
  for (GgufTensor& tensor : header->tensors) {
    tensor.file = index;
    if (!names->insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          StrCat(file.string(), ": tensor '", tensor.name, "' is in a file before it too"));
    }
  }
  if (index == 0) {
    parts->whole = *std::move(header);
    return absl::OkStatus();
  }
  for (GgufTensor& tensor : header->tensors) parts->whole.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

}  // namespace

std::vector<fs::path> GgufPartFiles(const fs::path& path) {
  const PartName name = NameOf(path);
  if (name.count == 0) return {path};
  std::vector<fs::path> files;
  for (int64_t i = 1; i <= name.count; ++i) files.push_back(PartFile(path, name, i));
  return files;
}

fs::path FirstGgufPart(const fs::path& path) { return GgufPartFiles(path)[0]; }

absl::StatusOr<GgufParts> ReadGgufParts(const fs::path& path) {
  const PartName name = NameOf(path);
  GgufParts parts;
  parts.files = GgufPartFiles(path);
  if (name.count == 0) {
    absl::StatusOr<GgufHeader> header = ReadGgufHeader(path);
    if (!header.ok()) return header.status();
    parts.whole = *std::move(header);
    const auto* count = parts.whole.Find<int64_t>("split.count");
    if (count == nullptr || *count <= 1) return parts;
    return absl::InvalidArgumentError(StrCat(path.string(), ": is one of ", *count,
                                             " files of a model, but is not named so; give ",
                                             "all of them their names, NAME", "-00001-of-",
                                             Padded(*count % 100'000), ".gguf and so on"));
  }
  if (name.number != 1) {
    return absl::InvalidArgumentError(StrCat(path.string(), ": is file ", name.number, " of ",
                                             name.count, " of a model; give the first one, ",
                                             parts.files[0].filename().string()));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < parts.files.size(); ++i) {
    if (absl::Status status = AddPart(i, &parts, &names); !status.ok()) return status;
  }
  const absl::Status total =
      Expect(parts.whole, path, "split.tensors.count",
             static_cast<int64_t>(parts.whole.tensors.size()), "tensors are missing");
  if (!total.ok()) return total;
  return parts;
}

}  // namespace tessera
