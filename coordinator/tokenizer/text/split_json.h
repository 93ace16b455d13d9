// A JSON object that is read once and given twice: all of it, in which members are found fast, and
// some of its members with the order of everything in them.
// Pure functions, thread-safe.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/tokenizer/text/json_fields.h"

namespace tessera::coordinator {

struct SplitJson {
  nlohmann::json all;
  // All objects' members in the text's order, which Python's readers keep and some texts are
  // printed in.
  nlohmann::ordered_json ordered;
};

// `ordered_members` are names at the top. InvalidArgument where the text is no JSON object, and as
// ParseJson. OutOfRange where an object among the ordered members has more than kMaxOrderedMembers:
// members in order are found one by one.
inline constexpr int kMaxOrderedMembers = 500;
absl::StatusOr<SplitJson> ParseSplit(std::string_view text, std::string_view name,
                                     const JsonLimits& limits,
                                     std::initializer_list<std::string_view> ordered_members);

}  // namespace tessera::coordinator
