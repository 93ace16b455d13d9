#include "coordinator/tracing/otlp_json.h"

#include <nlohmann/json.hpp>

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

// Values of the enums SpanKind and StatusCode.
constexpr int kInternal = 1, kServer = 2, kError = 2;

Json Attribute(const std::string& key, const SpanValue& value) {
  Json json;
  if (const auto* text = std::get_if<std::string>(&value)) {
    json["stringValue"] = *text;
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    json["intValue"] = std::to_string(*number);
  } else {
    json["doubleValue"] = std::get<double>(value);
  }
  return {{"key", key}, {"value", std::move(json)}};
}

Json ToJson(const Span& span) {
  Json json = {{"traceId", span.trace_id},
               {"spanId", span.span_id},
               {"name", span.name},
               {"kind", span.is_server ? kServer : kInternal},
               {"startTimeUnixNano", std::to_string(span.start_unix_nanoseconds)},
               {"endTimeUnixNano", std::to_string(span.end_unix_nanoseconds)},
               {"attributes", Json::array()}};
  if (!span.parent_span_id.empty()) json["parentSpanId"] = span.parent_span_id;
  for (const auto& [key, value] : span.attributes)
    json["attributes"].push_back(Attribute(key, value));
  if (!span.error.empty()) json["status"] = {{"code", kError}, {"message", span.error}};
  return json;
}

}  // namespace

std::string OtlpJson(const std::vector<Span>& spans, const std::string& version) {
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(ToJson(span));
  Json scope_spans = Json::object();
  scope_spans["scope"]["name"] = "tessera.coordinator";
  scope_spans["scope"]["version"] = version;
  scope_spans["spans"] = std::move(list);
  Json resource_spans = Json::object();
  resource_spans["resource"]["attributes"].push_back(
      Attribute("service.name", std::string("tessera")));
  resource_spans["resource"]["attributes"].push_back(Attribute("service.version", version));
  resource_spans["scopeSpans"].push_back(std::move(scope_spans));
  Json body = Json::object();
  body["resourceSpans"].push_back(std::move(resource_spans));
  // Names of clients may be no UTF-8.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera::coordinator
