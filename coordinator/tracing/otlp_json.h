// Spans as a request of OTLP/HTTP in JSON (opentelemetry-proto, trace/v1; its JSON mapping: ids in
// hexadecimal digits, 64-bit numbers as strings, enums as numbers). Thread rule: a pure function.
#pragma once

#include <string>
#include <vector>

#include "coordinator/tracing/request_spans.h"

namespace tessera::coordinator {

// The body of a POST to /v1/traces; `version` is this program's.
std::string OtlpJson(const std::vector<Span>& spans, const std::string& version);

}  // namespace tessera::coordinator
