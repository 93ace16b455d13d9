#include "coordinator/tracing/trace_context.h"

#include <algorithm>
#include <cstdint>
#include <random>

namespace tessera::coordinator {
namespace {

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  // "00-" + 32 digits + "-" + 16 digits + "-" + 2 digits.
  constexpr size_t kLength = 55;
  if (header.size() < kLength || header[2] != '-' || header[35] != '-' || header[52] != '-')
    return std::nullopt;
  const std::string_view version = header.substr(0, 2), flags = header.substr(53, 2);
  if (!IsHex(version) || version == "ff" || !IsHex(flags)) return std::nullopt;
  if (header.size() > kLength && (version == "00" || header[kLength] != '-')) return std::nullopt;
  const std::string_view trace = header.substr(3, 32), parent = header.substr(36, 16);
  if (!IsId(trace) || !IsId(parent)) return std::nullopt;
  const int low = flags[1] <= '9' ? flags[1] - '0' : flags[1] - 'a' + 10;
  return TraceContext{std::string(trace), std::string(parent), (low & 1) != 0};
}

TraceContext ContextOf(std::string_view header) {
  if (std::optional<TraceContext> given = ParseTraceparent(header); given.has_value())
    return *std::move(given);
  return {DrawTraceId(32), "", true};
}

std::string DrawTraceId(int digits) {
  static thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  while (id.size() < static_cast<size_t>(digits)) {
    uint64_t bits = random();
    if (bits == 0) continue;
    for (int i = 0; i < 16; ++i, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

}  // namespace tessera::coordinator
