// A body that is a Python list of calls with keyword arguments: [f(a=1, b="x"), g()], as Llama 3.2
// and 4 and Gemma 3 write them. Arguments are literals of Python or JSON.
//
// Calls come out when the list is whole. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string_view>

#include "coordinator/answer/call_body.h"
#include "coordinator/answer/tool_schemas.h"

namespace tessera::coordinator {

struct PythonCallsOptions {
  std::string_view closing = {};       // may be missing
  const ToolSchemas* known = nullptr;  // only calls of these functions are calls; null: all are
};

std::unique_ptr<CallBody> MakePythonCallsBody(const PythonCallsOptions& options);

}  // namespace tessera::coordinator
