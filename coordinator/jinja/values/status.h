// Early return of absl errors in the jinja interpreter, where nearly every step can fail.
// JINJA_RETURN_IF_ERROR(status); JINJA_ASSIGN_OR_RETURN(auto value, status_or);
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator::jinja {

// What Python raises as TypeError, ValueError, UndefinedError and so on: the template does not fit
// the request, so the client gets it.
inline absl::Status RenderError(std::string message) {
  return absl::InvalidArgumentError(std::move(message));
}

}  // namespace tessera::coordinator::jinja

#define JINJA_CONCAT_INNER(a, b) a##b
#define JINJA_CONCAT(a, b) JINJA_CONCAT_INNER(a, b)

#define JINJA_RETURN_IF_ERROR(expression)                               \
  do {                                                                  \
    if (absl::Status jinja_status = (expression); !jinja_status.ok()) { \
      return jinja_status;                                              \
    }                                                                   \
  } while (false)

#define JINJA_ASSIGN_OR_RETURN(target, expression) \
  JINJA_ASSIGN_OR_RETURN_AS(JINJA_CONCAT(jinja_result_, __LINE__), target, expression)

#define JINJA_ASSIGN_OR_RETURN_AS(result, target, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) {                                         \
    return std::move(result).status();                        \
  }                                                           \
  target = *std::move(result)
