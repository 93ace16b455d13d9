// What reading and tokenising 1 MB prompts does to streams that run meanwhile.
//
//   long_prompt [STREAMS [SECONDS [MILLISECONDS]]]
//
// Bars: p99 of the gaps between the streams' tokens grows by at most 10 ms; each prompt, being over
// the context, is refused with both numbers.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/bench/load_client.h"
#include "tests/bench/served.h"
#include "tests/coordinator/http_client.h"
#include "tests/fakes/fake_worker.h"

namespace {

// 1 MB of words.
std::string LongBody() {
  std::string body = "{\"prompt\":\"";
  for (int i = 0; body.size() < (1 << 20); ++i) body += "word" + std::to_string(i % 1000) + " ";
  return body + "\"}";
}

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
  const int tokens = static_cast<int>(kPace * (2 * seconds + 4));
  for (int i = 0; i < streams; ++i) {
    client->Open({.max_tokens = tokens});
    if (i % 10 == 0) client->Run(0.01);
  }
  client->Run(2);
  client->TakeGaps();
  client->Run(seconds);
  std::vector<float> alone = client->TakeGaps();

  std::atomic<bool> stop = false;
  std::atomic<int> refused = 0;
  std::atomic<int> sent = 0;
  std::string sample;
  std::thread sender([&] {
    const std::string body = LongBody();
    while (!stop) {
      tessera::coordinator::HttpClient http(served.http_port());
      http.SendRequest("POST", "/v1/completions", body);
      ++sent;
      const auto reply = http.Receive();
      const bool both = reply.body.find("2048 tokens") != std::string::npos &&
                        reply.body.find("the prompt has ") != std::string::npos;
      refused += reply.status == 400 && both;
      sample = reply.body;
    }
  });
  client->Run(seconds);
  stop = true;
  sender.join();
  std::vector<float> beside = client->TakeGaps();
  client->Run(30);

  int complete = 0;
  for (int i = 0; i < streams; ++i) complete += client->state(i).complete;
  const double p99_alone = tessera::Quantile(alone, 0.99);
  const double p99_beside = tessera::Quantile(beside, 0.99);
  std::printf("%d prompts of 1 MB, %d refused: %.200s\n", sent.load(), refused.load(),
              sample.c_str());
  std::printf(
      "%d of %d streams complete; p99 gap %.1f ms alone, %.1f ms beside: %+.1f ms (bar %.0f)\n",
      complete, streams, 1e3 * p99_alone, 1e3 * p99_beside, 1e3 * (p99_beside - p99_alone),
      1e3 * max_growth_seconds);
  const bool good = sent > 0 && refused == sent && complete == streams &&
                    p99_beside - p99_alone <= max_growth_seconds;
  std::printf("%s\n", good ? "ok" : "UNDER THE BAR");
  return good ? 0 : 1;
}
