// A body that is one call in JSON, several one behind the other, or a list of them.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string_view>

#include "coordinator/answer/call_body.h"
#include "coordinator/answer/tool_schemas.h"

namespace tessera::coordinator {

struct JsonCallsOptions {
  std::string_view closing = {};  // behind the last call; may be missing
  bool in_list = false;           // the opening marker has opened the list
  // Between calls that are no list, beside white space.
  char separator = 0;
  const ToolSchemas* known = nullptr;  // as JsonCallReader has it; must live as long
};

std::unique_ptr<CallBody> MakeJsonCallsBody(const JsonCallsOptions& options);

}  // namespace tessera::coordinator
