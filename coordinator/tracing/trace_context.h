// The trace that a request belongs to, as its client names it: the header `traceparent` of W3C's
// Trace Context (https://www.w3.org/TR/trace-context/). Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::coordinator {

struct TraceContext {
  std::string trace_id;        // 32 hexadecimal digits in lower case, not all 0
  std::string parent_span_id;  // 16 of these: the client's span; empty: the trace begins here
  bool sampled = true;         // its client records it
};

// Nullopt for what is no traceparent. Of versions above 00 the fields of 00 are read.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// The trace of a request: its header's, or else a new one.
TraceContext ContextOf(std::string_view header);

// `digits` random hexadecimal digits, not all 0; a multiple of 16.
std::string DrawTraceId(int digits);

}  // namespace tessera::coordinator
