// The keys of a GGUF file's architecture, noted as they are read: what no reader took is refused at
// the end. Copies them to config.json's.
//
// Thread rule: one thread. Borrows the header and the config. The first failure stays
// (InvalidArgument, naming file and key); what follows it has no effect that matters.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/model/gguf_header.h"
#include "third_party/absl/str_cat.h"

namespace tessera {

class GgufKeys {
 public:
  GgufKeys(const GgufHeader& header, std::string_view file, nlohmann::json* config)
      : header_(header), file_(file), config_(*config) {}

  // Keys below are named without it.
  void SetArchitecture(std::string_view name) { prefix_ = StrCat(name, "."); }
  std::string Whole(std::string_view key) const { return StrCat(prefix_, key); }

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  void Fail(std::string_view whole_key, std::string_view reason);

  const GgufHeader& header() const { return header_; }
  nlohmann::json& config() { return config_; }

  // The key's value, noted as read; null where it is not there.
  template <typename T>
  const T* Find(std::string_view key) {
    const std::string whole = Whole(key);
    read_.insert(whole);
    const T* value = header_.Find<T>(whole);
    if (value == nullptr && header_.keys.contains(whole))
      Fail(whole, "has a value of another type");
    return value;
  }
  const double* FindReal(std::string_view key);
  // One number for all layers, also where the file has a list of equal ones.
  const int64_t* FindSame(std::string_view key);
  // A number for each of so many layers, or one for all; fails where there is none.
  std::vector<int64_t> ListOf(std::string_view key, int64_t layers);

  void CopyInteger(std::string_view key, const char* name, bool required = false);
  void CopyReal(std::string_view key, std::string_view name);
  // A key that is read only to be refused where it says something.
  void Refuse(std::string_view key, double neutral);
  void MarkRead(std::string_view whole_key) { read_.emplace(whole_key); }
  // A key of the architecture that no reader took may change results.
  void RefuseOthers(absl::Span<const std::string_view> harmless);

 private:
  const GgufHeader& header_;
  const std::string file_;
  nlohmann::json& config_;
  std::string prefix_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace tessera
