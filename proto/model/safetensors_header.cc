#include "proto/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

constexpr int64_t kPrefixBytes = kSafetensorsPrefixBytes;
constexpr int64_t kMaxHeaderBytes = kMaxSafetensorsHeaderBytes;
constexpr size_t kMaxRank = 8;

struct TypeSize {
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<TypeSize, 16> kTypes = {{{"F32", 4},
                                              {"F16", 2},
                                              {"BF16", 2},
                                              {"F64", 8},
                                              {"I8", 1},
                                              {"U8", 1},
                                              {"BOOL", 1},
                                              {"F8_E4M3", 1},
                                              {"F8_E5M2", 1},
                                              {"F8_E8M0", 1},
                                              {"I16", 2},
                                              {"U16", 2},
                                              {"I32", 4},
                                              {"U32", 4},
                                              {"I64", 8},
                                              {"U64", 8}}};

std::optional<int64_t> BytesOf(std::string_view dtype) {
  for (const TypeSize& type : kTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return std::nullopt;
}

std::string Quoted(std::string_view name) {
  return StrCat("'", name.substr(0, 200), name.size() > 200 ? "...'" : "'");
}

// Takes the header apart as it is read. Only the expected nesting is accepted, so depth and memory
// are bounded whatever stands there; returning false ends the parse.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  std::vector<SafetensorsEntry> entries;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a truth value"); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected("a fraction"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool binary(binary_t&) override { return Unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return Unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) return Unexpected("a number beyond 2^63");
    std::vector<int64_t>& list = place_ == Place::kShape ? entry_.shape : offsets_;
    if (list.size() == (place_ == Place::kShape ? kMaxRank : 2)) return Unexpected("more numbers");
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kEntry || key_ != "dtype") return Unexpected("a string");
    entry_.dtype = value.substr(0, 40);
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kNothing) return Enter(Place::kTop);
    if (place_ != Place::kTop) return Unexpected("an object");
    return Enter(key_ == "__metadata__" ? Place::kMetadata : Place::kEntry);
  }

  bool key(string_t& name) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(name).second) return Fail(StrCat("tensor ", Quoted(name), " twice"));
      entry_ = {};
      entry_.name = name;
      offsets_.clear();
      has_shape_ = false;
    } else if (place_ == Place::kEntry && name != "dtype" && name != "shape" &&
               name != "data_offsets") {
      return Unexpected(StrCat("key ", Quoted(name)));
    }
    key_ = std::move(name);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry && !Finish()) return false;
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kEntry) return Unexpected("a list");
    if (key_ == "shape" && !has_shape_) {
      has_shape_ = true;
      return Enter(Place::kShape);
    }
    if (key_ == "data_offsets" && offsets_.empty()) return Enter(Place::kOffsets);
    return Unexpected("a list");
  }

  bool end_array() override { return Enter(Place::kEntry); }

  bool parse_error(size_t position, const std::string&, const json::exception&) override {
    return Fail(StrCat("the header is not valid JSON at byte ", position));
  }

 private:
  enum class Place { kNothing, kTop, kMetadata, kEntry, kShape, kOffsets, kEnd };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }
  bool Fail(std::string reason) {
    if (error.empty()) error = std::move(reason);
    return false;
  }
  bool Unexpected(std::string_view what) {
    if (place_ == Place::kNothing || place_ == Place::kTop) {
      return Fail(StrCat("the header has ", what, " where tensors are expected"));
    }
    return Fail(StrCat("tensor ", Quoted(entry_.name), ": ", what, " is unexpected"));
  }

  bool Finish() {
    if (entry_.dtype.empty() || !has_shape_ || offsets_.size() != 2) {
      return Fail(StrCat("tensor ", Quoted(entry_.name), ": dtype, shape or data_offsets missing"));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    entries.push_back(std::move(entry_));
    return true;
  }

  Place place_ = Place::kNothing;
  std::string key_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  bool has_shape_ = false;
  std::unordered_set<std::string> names_;
};

// What is wrong with one tensor's type, shape and size; empty if nothing.
std::string WrongSize(const SafetensorsEntry& entry) {
  const std::optional<int64_t> element_bytes = BytesOf(entry.dtype);
  if (!element_bytes) return StrCat("dtype ", Quoted(entry.dtype), " is not known");
  int64_t bytes = *element_bytes;
  for (int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return "the shape is too large";
  }
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    return StrCat("dtype and shape need ", bytes, " bytes, data_offsets give ",
                  entry.end - entry.begin);
  }
  return "";
}

}  // namespace

uint64_t SafetensorsHeaderBytes(std::string_view prefix) {
  if (static_cast<int64_t>(prefix.size()) < kPrefixBytes) return ~uint64_t{0};
  uint64_t bytes = 0;
  for (int i = 7; i >= 0; --i) bytes = bytes << 8 | static_cast<uint8_t>(prefix[i]);
  return bytes;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseSafetensorsHeader(std::string_view bytes,
                                                                     int64_t file_bytes,
                                                                     std::string_view file) {
  const auto error = [&](std::string_view reason) {
    return absl::InvalidArgumentError(StrCat(file, ": ", reason));
  };
  if (file_bytes < kPrefixBytes || static_cast<int64_t>(bytes.size()) < kPrefixBytes) {
    return error("too short for a safetensors file");
  }
  const uint64_t header_bytes = SafetensorsHeaderBytes(bytes);
  const int64_t most = std::min({kMaxHeaderBytes, file_bytes - kPrefixBytes,
                                 static_cast<int64_t>(bytes.size()) - kPrefixBytes});
  if (bytes.starts_with("version ")) {
    return error("a pointer of Git LFS, not the file itself: fetch it (git lfs pull, hf download)");
  }
  if (header_bytes > static_cast<uint64_t>(most)) {
    return error(StrCat("a header of ", header_bytes, " bytes in a file of ", file_bytes,
                        ": not a safetensors file, or cut off"));
  }

  const std::string_view header = bytes.substr(kPrefixBytes, header_bytes);
  HeaderHandler handler;
  if (!json::sax_parse(header.begin(), header.end(), &handler)) return error(handler.error);

  std::vector<SafetensorsEntry> entries = std::move(handler.entries);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const int64_t data_begin = kPrefixBytes + static_cast<int64_t>(header_bytes);
  int64_t covered = 0;  // bytes of the data, so far
  for (SafetensorsEntry& entry : entries) {
    std::string wrong = WrongSize(entry);
    if (wrong.empty() && entry.begin < covered) wrong = "its bytes overlap another tensor's";
    if (wrong.empty() && entry.begin > covered) wrong = "there is a hole before its bytes";
    if (wrong.empty() && entry.end > file_bytes - data_begin) {
      wrong = "its bytes lie beyond the end of the file: cut off";
    }
    if (!wrong.empty()) return error(StrCat("tensor ", Quoted(entry.name), ": ", wrong));
    covered = entry.end;
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  if (covered != file_bytes - data_begin) {
    return error(StrCat(file_bytes - data_begin - covered, " bytes belong to no tensor"));
  }
  return entries;
}

}  // namespace tessera
