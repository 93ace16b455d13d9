// What several JSON schemas ask for at once, as one schema: `$ref` with what stands beside it, and
// `allOf`.
//
// Only the top of a schema is merged: members that both have become an `allOf` of the two, which is
// merged in its turn. Drafts 4 to 2020-12, as far as grammars enforce them.
//
// Thread rule: pure functions. Errors: InvalidArgument with the keyword.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::coordinator {

// Says nothing of the value: title, default, and every name that is no keyword.
bool IsAnnotation(std::string_view keyword);

// Whether a pattern matches within `name`; true where that is not known.
bool MayMatch(const std::string& pattern, const std::string& name);

// The schema that `ref` names within `root`: "#", "#/$defs/...". Borrows root.
absl::StatusOr<const nlohmann::ordered_json*> ResolveRef(const nlohmann::ordered_json& root,
                                                         const std::string& ref);

// `schema` without $ref and allOf at its top; true or false where it is that.
absl::StatusOr<nlohmann::ordered_json> FlattenSchema(const nlohmann::ordered_json& root,
                                                     const nlohmann::ordered_json& schema);

}  // namespace tessera::coordinator
