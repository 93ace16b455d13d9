// Traces: what a traceparent says, where the spans of a request lie, how they are written, and that
// each generation ends once in the trace, however it ends. tests/end_to_end/tracing_test.py has a
// collector.

#include "coordinator/tracing/tracing.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/tracing/otlp_exporter.h"
#include "coordinator/tracing/otlp_json.h"
#include "coordinator/tracing/request_spans.h"
#include "coordinator/tracing/trace_context.h"
#include "tests/coordinator/answered_flow.h"

namespace tessera::coordinator {
namespace {

using Json = nlohmann::json;

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kParent = "00f067aa0ba902b7";

TEST_CASE("a traceparent names trace and parent, and whether it is recorded") {
  const auto sampled = ParseTraceparent("00-" + kTrace + "-" + kParent + "-01");
  REQUIRE(sampled.has_value());
  CHECK(sampled->trace_id == kTrace);
  CHECK(sampled->parent_span_id == kParent);
  CHECK(sampled->sampled);
  CHECK_FALSE(ParseTraceparent("00-" + kTrace + "-" + kParent + "-00")->sampled);
  CHECK_FALSE(ParseTraceparent("00-" + kTrace + "-" + kParent + "-fe")->sampled);
  CHECK(ParseTraceparent("00-" + kTrace + "-" + kParent + "-0b")->sampled);
  // A later version may say more.
  CHECK(ParseTraceparent("cc-" + kTrace + "-" + kParent + "-01-more").has_value());
}

TEST_CASE("what is no traceparent begins a trace") {
  const std::string zeros(32, '0');
  for (const std::string& bad :
       {std::string(), "00-" + kTrace + "-" + kParent, "ff-" + kTrace + "-" + kParent + "-01",
        "00-" + zeros + "-" + kParent + "-01", "00-" + kTrace + "-" + zeros.substr(16) + "-01",
        "00-" + kTrace + "-" + kParent + "-01-more", "cc-" + kTrace + "-" + kParent + "-01x",
        "00_" + kTrace + "-" + kParent + "-01", "00-" + kTrace + "-" + kParent + "-0g",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kParent + "-01"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParseTraceparent(bad).has_value());
    const TraceContext made = ContextOf(bad);
    CHECK(made.trace_id.size() == 32);
    CHECK(made.parent_span_id.empty());
    CHECK(made.sampled);
    CHECK(ContextOf(bad).trace_id != made.trace_id);
  }
}

constexpr int64_t kSecond = 1'000'000'000;

EndedRequest HandedOver() {
  EndedRequest request = {.context = {kTrace, kParent, true},
                          .request_id = "r1",
                          .model = "m",
                          .client = "c",
                          .choices = 1,
                          .max_tokens = 30,
                          .start_unix_nanoseconds = 100 * kSecond,
                          .end_unix_nanoseconds = 110 * kSecond,
                          .usage = {},
                          .status = absl::OkStatus()};
  GenerationTimings& timings = request.usage.timings;
  timings.queue_seconds = 1;
  timings.prefill_replica = "p";
  timings.prefill_seconds = 2;
  timings.kv_transfer = {.bytes = 64, .seconds = 2, .hidden_share = 0.75, .transport = "tcp"};
  timings.decode_replica = "d";
  timings.decode_tokens = 29;
  timings.decode_seconds = 5;
  return request;
}

std::function<std::string()> Counting() {
  return [n = 0]() mutable { return std::string(15, '0') + std::to_string(++n); };
}

TEST_CASE("one span each for queue, prefill, hand-over and decode") {
  const std::vector<Span> spans = SpansOf(HandedOver(), Counting());
  REQUIRE(spans.size() == 5);
  const auto place = [&](size_t i) {
    return std::vector<double>{
        static_cast<double>(spans[i].start_unix_nanoseconds - 100 * kSecond) / kSecond,
        static_cast<double>(spans[i].end_unix_nanoseconds - 100 * kSecond) / kSecond};
  };
  const char* names[] = {"generate", "queue", "prefill", "hand-over", "decode"};
  const std::vector<double> places[] = {{0, 10}, {0, 3}, {3, 5}, {3.5, 5.5}, {5, 10}};
  for (size_t i = 0; i < spans.size(); ++i) {
    CAPTURE(i);
    CHECK(spans[i].name == names[i]);
    CHECK(place(i) == places[i]);
    CHECK(spans[i].trace_id == kTrace);
    CHECK(spans[i].parent_span_id == (i == 0 ? kParent : spans[0].span_id));
    CHECK(spans[i].is_server == (i == 0));
    CHECK(spans[i].error.empty());
  }
}

TEST_CASE("parts that did not happen have no span, and none lies outside of its request") {
  EndedRequest request = HandedOver();
  request.usage.timings.kv_transfer.reset();
  request.usage.timings.decode_tokens = 0;
  request.usage.timings.decode_seconds = 60;  // clocks that disagree
  std::vector<Span> spans = SpansOf(request, Counting());
  REQUIRE(spans.size() == 3);
  for (const Span& span : spans) {
    CHECK(span.start_unix_nanoseconds >= 100 * kSecond);
    CHECK(span.end_unix_nanoseconds <= 110 * kSecond);
    CHECK(span.start_unix_nanoseconds <= span.end_unix_nanoseconds);
  }
  request.usage = {};
  request.status = absl::UnavailableError("no replica is ready");
  spans = SpansOf(request, Counting());
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].error == "no replica is ready");
  CHECK(spans[1].name == "queue");
}

TEST_CASE("spans are written as OTLP's JSON wants them") {
  EndedRequest request = HandedOver();
  request.client = "not \xff UTF-8";
  request.status = absl::CancelledError("");
  const Json body = Json::parse(OtlpJson(SpansOf(request, Counting()), "0.1"));
  REQUIRE(body["resourceSpans"].size() == 1);
  const Json& resource = body["resourceSpans"][0];
  CHECK(resource["resource"]["attributes"] ==
        Json::parse(R"([{"key": "service.name", "value": {"stringValue": "tessera"}},
                        {"key": "service.version", "value": {"stringValue": "0.1"}}])"));
  REQUIRE(resource["scopeSpans"].size() == 1);
  const Json& spans = resource["scopeSpans"][0]["spans"];
  REQUIRE(spans.size() == 5);
  CHECK(spans[0]["traceId"] == kTrace);
  CHECK(spans[0]["parentSpanId"] == kParent);
  CHECK(spans[0]["startTimeUnixNano"] == "100000000000");
  CHECK(spans[0]["kind"] == 2);
  CHECK(spans[0]["status"]["code"] == 2);
  CHECK(spans[1]["kind"] == 1);
  CHECK_FALSE(spans[1].contains("status"));
  CHECK(spans[3]["attributes"][2] ==
        Json::parse(R"({"key": "tessera.bytes", "value": {"intValue": "64"}})"));
}

TEST_CASE("a collector's address") {
  const auto plain = ParseOtlpEndpoint("http://collector");
  REQUIRE(plain.ok());
  CHECK((plain->peer.host == "collector" && plain->peer.port == "4318" &&
         plain->path == "/v1/traces"));
  const auto ipv6 = ParseOtlpEndpoint("http://[::1]:4319/otlp/");
  REQUIRE(ipv6.ok());
  CHECK((ipv6->peer.host == "::1" && ipv6->peer.port == "4319" && ipv6->path == "/otlp/v1/traces"));
  CHECK(ipv6->peer.authority == "[::1]:4319");
  CHECK(ParseOtlpEndpoint("http://a:1/v1/traces")->path == "/v1/traces");
  for (const char* bad : {"", "collector:4318", "https://a:4318", "http://", "http://:4318",
                          "http://a:b", "http://a:", "http://[::1", "http://u@a:1", "http://a b"}) {
    CAPTURE(bad);
    const auto parsed = ParseOtlpEndpoint(bad);
    CHECK(parsed.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(parsed.status().message()).find("--otlp-endpoint") != std::string::npos);
  }
}

class Sink : public GenerationSink {
 public:
  void OnPromptLogprobs(std::vector<PositionChances>) override { ++events; }
  void OnChoice(ChoiceEvent) override { ++events; }
  void OnEnd(const absl::Status&, const GenerationUsage&, const std::string&) override { ++events; }
  int events = 0;
};

GenerationRequest Named(const std::string& id) {
  GenerationRequest request;
  request.request_id = id;
  return request;
}

double Dropped(const Tracing& tracing) {
  for (const auto& family : tracing.families()) {
    if (family.name == "tessera_trace_spans_dropped_total") return family.metric[0].counter.value;
  }
  return -1;
}

// Nobody listens: what is added is dropped, each span once.
double DroppedInEnd(const Tracing& tracing, double expected) {
  for (int i = 0; i < 1000 && Dropped(tracing) < expected; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return Dropped(tracing);
}

TEST_CASE("each generation ends once in its trace, and its events pass") {
  AnsweredFlow next;
  const auto tracing = Tracing::Start({"http://127.0.0.1:1", "0.1"});
  REQUIRE(tracing.ok());
  GenerationService& service = (*tracing)->Before(next, "m");
  const auto sink = std::make_shared<Sink>();
  {  // ends, and is dropped by its owner then: a root and a queue
    auto handle = service.Start(Named("a"), sink);
    REQUIRE(handle.ok());
    next.sinks[0]->OnPromptLogprobs({});
    next.sinks[0]->OnChoice({});
    next.sinks[0]->OnEnd(absl::OkStatus(), {}, "r");
    CHECK(sink->events == 3);
    (*handle)->Cancel();
  }
  {  // its client leaves
    auto handle = service.Start(Named("b"), sink);
    REQUIRE(handle.ok());
  }
  next.refusal = absl::ResourceExhaustedError("full");
  CHECK(service.Start(Named("c"), sink).status() == next.refusal);
  next.refusal = absl::OkStatus();
  // Its client does not record it.
  GenerationRequest unsampled;
  unsampled.traceparent = "00-" + kTrace + "-" + kParent + "-00";
  CHECK(service.Start(unsampled, sink).ok());
  next.sinks.clear();
  CHECK(DroppedInEnd(**tracing, 6) == 6);
}

TEST_CASE("without a collector nothing is traced, and a wrong one is refused") {
  AnsweredFlow next;
  const auto tracing = Tracing::Start({"", "0.1"});
  REQUIRE(tracing.ok());
  CHECK(&(*tracing)->Before(next, "m") == &next);
  CHECK((*tracing)->families().empty());
  CHECK(Tracing::Start({"https://a", "0.1"}).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::coordinator
