// What readers that never read do to the others: 100 of them beside 300 that read.
//
//   slow_readers [READERS [NON_READERS [SECONDS [RATIO]]]]
//
// Bars: each non-reader is cancelled; until then it costs the coordinator at most 64 KB of pending
// bytes (and 32 KB as any stream), with 1 MB for all together that the allocator may take; p99 of
// the gaps between the readers' tokens stays within 1.2 times what it is without them.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/bench/load_client.h"
#include "tests/bench/served.h"
#include "tests/fakes/fake_worker.h"

int main(int argc, char** argv) {
  const int readers = argc > 1 ? std::atoi(argv[1]) : 300;
  const int non_readers = argc > 2 ? std::atoi(argv[2]) : 100;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 15;
  constexpr double kPace = 20;
  const double max_ratio = argc > 4 ? std::atof(argv[4]) : 1.2;
  constexpr double kMaxBytes = (64 + 32) << 10;
  constexpr double kAllocatorBytes = 1 << 20;

  tessera::Served served({"--max-num-seqs", "65536"});
  tessera::FakeWorkerOptions options;
  options.coordinator = served.grpc_address();
  options.tokens_per_second = kPace;
  options.logprobs_tokens_per_second = kPace;
  const auto worker = tessera::FakeWorker::Start(options);
  served.WaitUntilReady();
  const auto client = tessera::LoadClient::Connect(served.http_port());
  const int tokens = std::min(1900, static_cast<int>(kPace * (3 * seconds + 10)));
  for (int i = 0; i < readers; ++i) {
    client->Open({.max_tokens = tokens});
    if (i % 10 == 0) client->Run(0.01);
  }
  client->Run(2);
  client->TakeGaps();
  client->Run(seconds);
  std::vector<float> alone = client->TakeGaps();
  const int64_t before_bytes = served.MemoryBytes();
  // Much text a token, so that the kernel's buffers are full soon.
  for (int i = 0; i < non_readers; ++i) {
    client->Open({.max_tokens = 1900, .logprobs = 20, .reads = false});
  }
  // The bound is reached just before the cancellation, so that is how long to watch.
  int64_t most_bytes = before_bytes;
  for (int i = 0; i < 300 && (worker->cancelled() < non_readers || i < 10 * seconds); ++i) {
    client->Run(0.1);
    most_bytes = std::max(most_bytes, served.MemoryBytes());
  }
  std::vector<float> beside = client->TakeGaps();
  const int64_t after_bytes = served.MemoryBytes();
  client->Run(tokens / kPace);

  int complete = 0;
  for (int i = 0; i < readers; ++i) complete += client->state(i).complete;
  const double p99_alone = tessera::Quantile(alone, 0.99);
  const double p99_beside = tessera::Quantile(beside, 0.99);
  const double bytes =
      std::max(0.0, static_cast<double>(most_bytes - before_bytes) - kAllocatorBytes) /
      std::max(1, non_readers);
  const double left = static_cast<double>(after_bytes - before_bytes) / std::max(1, non_readers);
  const double ratio = p99_beside / p99_alone;
  std::printf("%d of %d non-readers cancelled; %d of %d readers complete\n",
              static_cast<int>(worker->cancelled()), non_readers, complete, readers);
  std::printf("p99 gap %.1f ms alone, %.1f ms beside them: %.2fx (bar %.1fx)\n", 1e3 * p99_alone,
              1e3 * p99_beside, ratio, max_ratio);
  std::printf("at most %.1f KB a non-reader (bar %.0f); %.1f KB after its end\n", bytes / 1024,
              kMaxBytes / 1024, left / 1024);
  const bool good = worker->cancelled() == non_readers && complete == readers &&
                    ratio <= max_ratio && bytes <= kMaxBytes;
  std::printf("%s\n", good ? "ok" : "UNDER THE BAR");
  return good ? 0 : 1;
}
