// Tokens to a Template. What the language of chat_template.h does not have is refused here.
//
// Pure function. Errors are InvalidArgument and start with the template's line. Nesting is bounded:
// kMaxStatementDepth blocks, kMaxExpressionHeight operators (Python itself allows 100 and 200).
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "coordinator/jinja/ast.h"

namespace tessera::coordinator::jinja {

inline constexpr int kMaxStatementDepth = 100;
inline constexpr int kMaxExpressionHeight = 200;
inline constexpr size_t kMaxTemplateBytes = 4 << 20;

absl::StatusOr<std::shared_ptr<const Template>> ParseTemplate(std::string_view source);

}  // namespace tessera::coordinator::jinja
