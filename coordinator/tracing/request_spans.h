// A request that has ended as the spans of a trace: one of all of it, and below it one each for the
// wait in queues, the computation of the prompt, the way of its keys and values to another replica,
// and decoding. Where each lies in time follows from GenerationTimings, counted back from the end.
// Thread rule: plain data and a pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/flow/generation.h"
#include "coordinator/tracing/trace_context.h"

namespace tessera::coordinator {

using SpanValue = std::variant<std::string, int64_t, double>;

struct Span {
  std::string trace_id, span_id, parent_span_id;  // the last one may be empty
  std::string name;
  bool is_server = false;  // else it is internal to the server
  int64_t start_unix_nanoseconds = 0, end_unix_nanoseconds = 0;
  std::vector<std::pair<std::string, SpanValue>> attributes;
  std::string error;  // empty: it went well
};

struct EndedRequest {
  TraceContext context;
  std::string request_id, model, client;
  int64_t choices = 1, max_tokens = 0;
  int64_t start_unix_nanoseconds = 0, end_unix_nanoseconds = 0;
  GenerationUsage usage;
  absl::Status status;
};

// `draw_id` gives span ids (16 hexadecimal digits).
std::vector<Span> SpansOf(const EndedRequest& request, const std::function<std::string()>& draw_id);

}  // namespace tessera::coordinator
