// Memory and loss under many streams: N streams at one token a second against a real coordinator.
//
//   streams [STREAMS [SECONDS]]       10000 streams, 60 s
//
// Bars: every token of every stream arrives once and in order; the coordinator takes at most 32 KB
// of memory more a stream.

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "tests/bench/load_client.h"
#include "tests/bench/served.h"
#include "tests/fakes/fake_worker.h"

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 10000;
  const int seconds = argc > 2 ? std::atoi(argv[2]) : 60;
  constexpr double kMaxBytes = 32 << 10;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  tessera::Served served({"--max-num-seqs", "65536", "--max-waiting", "65536"});
  tessera::FakeWorkerOptions options;
  options.coordinator = served.grpc_address();
  const auto worker = tessera::FakeWorker::Start(options);
  served.WaitUntilReady();
  const auto client = tessera::LoadClient::Connect(served.http_port());

  // The first few pay for what all share.
  for (int i = 0; i < 8; ++i) client->Open({.max_tokens = 1});
  client->Run(10);
  const int64_t idle_bytes = served.MemoryBytes();
  const double cpu_before = served.CpuSeconds();
  const int first = client->streams();
  for (int i = 0; i < streams; ++i) {
    if (client->Open({.max_tokens = seconds}) < 0) {
      std::printf("stream %d of %d could not be opened: raise the open-file limit (ulimit -n)\n", i,
                  streams);
      return 2;
    }
    if (i % 50 == 0) client->Run(0.002);
  }
  client->TakeGaps();
  client->Run(seconds / 2.0);
  const int64_t busy_bytes = served.MemoryBytes();
  const int64_t running = worker->running();
  client->Run(seconds + 60.0);

  int complete = 0;
  int64_t tokens = 0;
  for (int i = first; i < client->streams(); ++i) {
    complete += client->state(i).complete;
    tokens += client->state(i).tokens;
  }
  std::vector<float> gaps = client->TakeGaps();
  const double bytes_per_stream = static_cast<double>(busy_bytes - idle_bytes) / streams;
  const double cpu = served.CpuSeconds() - cpu_before;
  std::printf("%d streams, %d tokens each at 1/s: %d complete and in order, %lld of %lld tokens\n",
              streams, seconds, complete, static_cast<long long>(tokens),
              static_cast<long long>(streams) * seconds);
  std::printf("coordinator: %.1f MB idle, %.1f MB with %lld streams: %.1f KB a stream (bar %.0f)\n",
              idle_bytes / 1e6, busy_bytes / 1e6, static_cast<long long>(running),
              bytes_per_stream / 1024, kMaxBytes / 1024);
  std::printf("coordinator: %.1f us of processor time a token; gap p50 %.3f s, p99 %.3f s\n",
              1e6 * cpu / static_cast<double>(tokens), tessera::Quantile(gaps, 0.5),
              tessera::Quantile(gaps, 0.99));
  const bool good =
      complete == streams && running >= streams * 9 / 10 && bytes_per_stream <= kMaxBytes;
  std::printf("%s\n", good ? "ok" : "UNDER THE BAR");
  return good ? 0 : 1;
}
