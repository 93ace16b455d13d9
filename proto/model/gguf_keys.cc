#include "proto/model/gguf_keys.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

constexpr size_t kMaxShown = 60;

}  // namespace

void GgufKeys::Fail(std::string_view whole_key, std::string_view reason) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      StrCat(file_, ": key '", whole_key.substr(0, kMaxShown), "' ", reason));
}

const double* GgufKeys::FindReal(std::string_view key) {
  const double* value = Find<double>(key);
  if (value != nullptr && !std::isfinite(*value)) Fail(Whole(key), "is not finite");
  return value;
}

const int64_t* GgufKeys::FindSame(std::string_view key) {
  const std::string whole = Whole(key);
  const auto* list = header_.Find<std::vector<int64_t>>(whole);
  if (list == nullptr) return Find<int64_t>(key);
  read_.insert(whole);
  if (list->empty()) return nullptr;
  if (std::any_of(list->begin(), list->end(), [&](int64_t n) { return n != list->front(); })) {
    Fail(whole, "differs between layers: not supported");
  }
  return &list->front();
}

std::vector<int64_t> GgufKeys::ListOf(std::string_view key, int64_t layers) {
  const std::string whole = Whole(key);
  read_.insert(whole);
  if (const auto* list = header_.Find<std::vector<int64_t>>(whole)) {
    if (static_cast<int64_t>(list->size()) >= layers) return *list;
    Fail(whole, "names fewer layers than there are");
  }
  const auto* one = header_.Find<int64_t>(whole);
  if (one == nullptr) Fail(whole, "is missing");
  return std::vector<int64_t>(static_cast<size_t>(layers), one == nullptr ? 0 : *one);
}

void GgufKeys::CopyInteger(std::string_view key, const char* name, bool required) {
  const int64_t* value = FindSame(key);
  if (value != nullptr) {
    config_[name] = *value;
  } else if (required) {
    Fail(Whole(key), "is missing");
  }
}

void GgufKeys::CopyReal(std::string_view key, std::string_view name) {
  if (const double* value = FindReal(key)) config_[std::string(name)] = *value;
}

void GgufKeys::Refuse(std::string_view key, double neutral) {
  const std::string whole = Whole(key);
  read_.insert(whole);
  const auto* integer = header_.Find<int64_t>(whole);
  const auto* real = header_.Find<double>(whole);
  const double value = integer != nullptr ? static_cast<double>(*integer)
                       : real != nullptr  ? *real
                                          : neutral;
  if (value != neutral) Fail(whole, StrCat("is ", value, ": not supported"));
}

void GgufKeys::RefuseOthers(absl::Span<const std::string_view> harmless) {
  for (const std::string_view key : harmless) read_.insert(Whole(key));
  for (const auto& [key, unused] : header_.keys) {
    if (!key.starts_with(prefix_) || read_.contains(key)) continue;
    Fail(key, "is not understood, and may change what the model answers: not supported");
  }
}

}  // namespace tessera
