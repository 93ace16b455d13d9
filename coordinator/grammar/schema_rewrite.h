// Keywords that say what a value is not, or what follows from something, as others that grammars
// hold: `not`, `if`, and what properties depend on.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace tessera::coordinator {

// What `schema` refuses, where that can be said: a value of the one is none of the other, and every
// value is of one of them. Of values that are only counted up ("enum", "const") it is {"not":
// {"enum": [...]}}.
std::optional<nlohmann::ordered_json> ComplementOf(const nlohmann::ordered_json& schema);

// `flat` (schema_merge.h) without those of these keywords that can be said by others, which stand
// in an allOf. Nothing where it has none.
std::optional<nlohmann::ordered_json> RewriteSchema(const nlohmann::ordered_json& flat);

}  // namespace tessera::coordinator
