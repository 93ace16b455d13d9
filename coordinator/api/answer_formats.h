// How a model's answers are read, found at start.
// Thread rule: pure functions.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "coordinator/api/front_door.h"

namespace tessera::coordinator {

// Finds call_format and thinking from the chat template; `parser` names the former, "" does not.
// A format that is found must read a call that the template itself writes, or there is none.
// InvalidArgument where there is no format of that name.
absl::Status FindAnswerFormats(std::string_view parser, ServedModel& model);

}  // namespace tessera::coordinator
