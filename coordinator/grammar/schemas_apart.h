// Whether texts of one schema's grammar are values of another schema, and those that are not: what
// oneOf asks.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace tessera::coordinator {

// True: no text that the grammar of one of them has is a value of another. False: not known.
bool SchemasApart(const nlohmann::ordered_json& root,
                  const std::vector<nlohmann::ordered_json>& schemas);

// Each of the schemas without the values that another one accepts too; nothing where these cannot
// be said.
std::optional<std::vector<nlohmann::ordered_json>> WithoutCommonValues(
    const nlohmann::ordered_json& root, const std::vector<nlohmann::ordered_json>& schemas);

}  // namespace tessera::coordinator
