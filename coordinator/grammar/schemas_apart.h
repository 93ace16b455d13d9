// Whether texts of one schema's grammar are values of another schema: what oneOf asks.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tessera::coordinator {

// True: no text that the grammar of one of them has is a value of another. False: not known.
bool SchemasApart(const nlohmann::ordered_json& root,
                  const std::vector<nlohmann::ordered_json>& schemas);

}  // namespace tessera::coordinator
