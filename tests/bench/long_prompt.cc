// What reading and tokenising 1 MB prompts, over HTTP and then over gRPC, does to streams that run
// meanwhile.
//
//   long_prompt [STREAMS [SECONDS [MILLISECONDS]]]
//
// Bars, for each door: p99 of the gaps between the streams' tokens grows by at most 10 ms; each
// prompt, being over the context, is refused with both numbers.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "tests/bench/load_client.h"
#include "tests/bench/served.h"
#include "tests/coordinator/http_client.h"
#include "tests/fakes/fake_worker.h"

namespace {

// 1 MB of words.
std::string LongText() {
  std::string text;
  for (int i = 0; text.size() < (1 << 20); ++i) text += "word" + std::to_string(i % 1000) + " ";
  return text;
}

// Each sends one such prompt and returns what it was answered.
std::string AskHttp(const tessera::Served& served, const std::string& text) {
  tessera::coordinator::HttpClient http(served.http_port());
  http.SendRequest("POST", "/v1/completions", "{\"prompt\":\"" + text + "\"}");
  const auto reply = http.Receive();
  return std::to_string(reply.status) + " " + reply.body;
}
std::string AskGrpc(tessera::v1::Inference::Stub& stub, const std::string& text) {
  grpc::ClientContext context;
  tessera::v1::CompletionRequest request;
  request.set_text(text);
  tessera::v1::CompletionReply reply;
  const grpc::Status status = stub.Complete(&context, request, &reply);
  const bool refused = status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
  return (refused ? "400 " : "") + status.error_message();
}

// Prompts one after the other until the end; counts those that were refused with both numbers.
class Sender {
 public:
  explicit Sender(std::function<std::string()> ask)
      : thread_([this, ask = std::move(ask)] {
          while (!stop_) {
            ++sent;
            sample = ask();
            refused += sample.starts_with("400 ") &&
                       sample.find("2048 tokens") != std::string::npos &&
                       sample.find("is at least ") != std::string::npos;
          }
        }) {}
  void Stop() {
    stop_ = true;
    thread_.join();
  }
  std::atomic<int> sent = 0, refused = 0;
  std::string sample;  // after Stop

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 300;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 15;
  constexpr double kPace = 20;
  const double max_growth_seconds = (argc > 3 ? std::atof(argv[3]) : 10) / 1e3;

  tessera::Served served({"--max-num-seqs", "65536"});
  tessera::FakeWorkerOptions options;
  options.coordinator = served.grpc_address();
  options.tokens_per_second = kPace;
  const auto worker = tessera::FakeWorker::Start(options);
  served.WaitUntilReady();
  const auto client = tessera::LoadClient::Connect(served.http_port());
  const int tokens = static_cast<int>(kPace * (3 * seconds + 4));
  for (int i = 0; i < streams; ++i) {
    client->Open({.max_tokens = tokens});
    if (i % 10 == 0) client->Run(0.01);
  }
  client->Run(2);
  client->TakeGaps();
  client->Run(seconds);
  std::vector<float> alone = client->TakeGaps();

  const std::string text = LongText();
  const auto stub = tessera::v1::Inference::NewStub(
      grpc::CreateChannel(served.grpc_address(), grpc::InsecureChannelCredentials()));
  const double p99_alone = tessera::Quantile(alone, 0.99);
  bool good = true;
  for (const bool over_grpc : {false, true}) {
    client->TakeGaps();
    Sender sender([&] { return over_grpc ? AskGrpc(*stub, text) : AskHttp(served, text); });
    client->Run(seconds);
    sender.Stop();
    std::vector<float> beside = client->TakeGaps();
    const double growth = tessera::Quantile(beside, 0.99) - p99_alone;
    std::printf("%s: %d prompts of 1 MB, %d refused: %.200s\n", over_grpc ? "gRPC" : "HTTP",
                sender.sent.load(), sender.refused.load(), sender.sample.c_str());
    std::printf("p99 gap %.1f ms alone, beside them %+.1f ms (bar %.0f)\n", 1e3 * p99_alone,
                1e3 * growth, 1e3 * max_growth_seconds);
    good &= sender.sent > 0 && sender.refused == sender.sent && growth <= max_growth_seconds;
  }
  client->Run(30);

  int complete = 0;
  for (int i = 0; i < streams; ++i) complete += client->state(i).complete;
  std::printf("%d of %d streams complete\n", complete, streams);
  good &= complete == streams;
  std::printf("%s\n", good ? "ok" : "UNDER THE BAR");
  return good ? 0 : 1;
}
