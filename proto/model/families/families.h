// The families that can be served, by the name of their class.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/model/families/family.h"

namespace tessera {

// In the order of their classes' names.
absl::Span<const Family* const> Families();

// Null where no family has this name.
const Family* FindFamily(std::string_view architecture);

// By GgufFacts::architecture and with_images.
const Family* FindGgufFamily(std::string_view architecture, bool with_experts);

}  // namespace tessera
