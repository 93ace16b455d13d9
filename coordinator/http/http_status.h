// The one table from status codes to HTTP codes and OpenAI's error types. Pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace tessera::coordinator {

struct HttpError {
  int status = 500;
  std::string_view type;  // OpenAI's error.type
};

HttpError ToHttpError(absl::StatusCode code);

}  // namespace tessera::coordinator
