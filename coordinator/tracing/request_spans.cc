#include "coordinator/tracing/request_spans.h"

#include <algorithm>
#include <cmath>

namespace tessera::coordinator {
namespace {

int64_t Nanoseconds(double seconds) { return std::llround(std::max(seconds, 0.0) * 1e9); }

}  // namespace

std::vector<Span> SpansOf(const EndedRequest& request,
                          const std::function<std::string()>& draw_id) {
  const GenerationTimings& timings = request.usage.timings;
  const int64_t begin = request.start_unix_nanoseconds;
  const int64_t end = std::max(begin, request.end_unix_nanoseconds);
  Span whole = {.trace_id = request.context.trace_id,
                .span_id = draw_id(),
                .parent_span_id = request.context.parent_span_id,
                .name = "generate",
                .is_server = true,
                .start_unix_nanoseconds = begin,
                .end_unix_nanoseconds = end,
                .attributes = {{"gen_ai.request.model", request.model},
                               {"gen_ai.request.max_tokens", request.max_tokens},
                               {"gen_ai.request.choice.count", request.choices},
                               {"gen_ai.usage.input_tokens", request.usage.prompt_tokens},
                               {"gen_ai.usage.output_tokens", request.usage.completion_tokens},
                               {"tessera.request_id", request.request_id},
                               {"tessera.cached_tokens", request.usage.cached_tokens}},
                .error = ""};
  if (!request.client.empty()) whole.attributes.emplace_back("tessera.client", request.client);
  if (!request.status.ok()) {
    whole.error = std::string(request.status.message());
    if (whole.error.empty()) whole.error = absl::StatusCodeToString(request.status.code());
  }
  std::vector<Span> spans = {whole};
  const auto add = [&](const char* name, int64_t from, int64_t to,
                       std::vector<std::pair<std::string, SpanValue>> attributes) {
    spans.push_back({.trace_id = whole.trace_id,
                     .span_id = draw_id(),
                     .parent_span_id = whole.span_id,
                     .name = name,
                     .is_server = false,
                     .start_unix_nanoseconds = std::clamp(from, begin, end),
                     .end_unix_nanoseconds = std::clamp(to, begin, end),
                     .attributes = std::move(attributes),
                     .error = ""});
  };
  if (timings.prefill_replica.empty()) {  // no replica began it
    add("queue", begin, end, {});
    return spans;
  }
  const int64_t decode = end - Nanoseconds(timings.decode_seconds);
  const int64_t prefill = decode - Nanoseconds(timings.prefill_seconds);
  add("queue", begin, prefill, {{"tessera.replica_queue_seconds", timings.queue_seconds}});
  add("prefill", prefill, decode, {{"tessera.replica", timings.prefill_replica}});
  if (timings.kv_transfer.has_value()) {
    const KvTransferTimings& move = *timings.kv_transfer;
    // What the prompt's computation did not hide comes behind it.
    const int64_t there = decode + Nanoseconds(move.seconds * (1 - move.hidden_share));
    add("hand-over", there - Nanoseconds(move.seconds), there,
        {{"tessera.from", timings.prefill_replica},
         {"tessera.to", timings.decode_replica},
         {"tessera.bytes", move.bytes},
         {"tessera.transport", move.transport},
         {"tessera.codec", move.codec}});
  }
  if (timings.decode_tokens > 0) {
    add("decode", decode, end,
        {{"tessera.replica", timings.decode_replica}, {"tessera.tokens", timings.decode_tokens}});
  }
  return spans;
}

}  // namespace tessera::coordinator
