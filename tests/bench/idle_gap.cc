// What a pause before a request adds to its answer: one-token completions over HTTP and over gRPC,
// each after nothing has happened for a while.
//
//   idle_gap [SAMPLES [PAIRS [FIRST [LAST [MEDIAN [MAX]]]]]]
//     SAMPLES   of each idle time and door (5)
//     PAIRS     of coordinator and worker, side by side (10): a pair is idle while others answer
//     FIRST     shortest and
//     LAST      longest idle time in seconds, in steps of 20 ms (0.5, 3.5)
//     MEDIAN    bars in ms (3, 20)
//     MAX
//
// Bars, for each door: no idle time adds more than 3 ms in the median nor 20 ms at most to the
// median after 0.2 s. Idle times beyond a bar are measured again, up to twice, and judged by their
// newest samples: a stall comes back, other work on the machine seldom does at the same idle time.

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "deploy/processes/child_process.h"
#include "proto/inference.grpc.pb.h"
#include "tests/bench/served.h"
#include "tests/coordinator/http_client.h"
#include "tests/temporary_folder.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBaselineSeconds = 0.2;
constexpr double kStepSeconds = 0.02;
constexpr int kRounds = 3;
const char* const kDoors[] = {"HTTP", "gRPC"};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(2);
}

// A coordinator and a worker, processes of their own, that nobody else talks to.
class Pair {
 public:
  explicit Pair(int index) : served_({}) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    auto worker = tessera::deploy::ChildProcess::Start(
        "worker",
        {tessera::Runfile("worker/tessera-worker"), "--coordinator", served_.grpc_address(),
         "--name", "idle/" + std::to_string(index), "--cpus", std::to_string(index % cores),
         "--kv-cache-memory-bytes", "32MiB"},
        folder_.path() / "log");
    if (!worker.ok()) Die(std::string(worker.status().message()));
    worker_ = std::make_unique<tessera::deploy::ChildProcess>(*std::move(worker));
    served_.WaitUntilReady();
    http_ = std::make_unique<tessera::coordinator::HttpClient>(served_.http_port());
    // A channel of its own: one that pairs shared would not be idle.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = tessera::v1::Inference::NewStub(grpc::CreateCustomChannel(
        served_.grpc_address(), grpc::InsecureChannelCredentials(), arguments));
    for (int i = 0; i < 5; ++i) {
      Ask(0);
      Ask(1);
    }
  }

  // Seconds from the request to the whole answer, after `idle_seconds` without one.
  double Measure(int door, double idle_seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(idle_seconds));
    const Clock::time_point begin = Clock::now();
    Ask(door);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  void Ask(int door) {
    if (door == 0) {
      http_->SendRequest("POST", "/v1/completions", R"({"prompt":"What","max_tokens":1})");
      const auto reply = http_->Receive();
      if (reply.status != 200) Die("HTTP: " + std::to_string(reply.status) + " " + reply.body);
      return;
    }
    grpc::ClientContext context;
    tessera::v1::CompletionRequest request;
    request.set_text("What");
    request.mutable_options()->set_max_tokens(1);
    tessera::v1::CompletionReply reply;
    const grpc::Status status = stub_->Complete(&context, request, &reply);
    if (!status.ok()) Die("gRPC: " + status.error_message());
  }

  const tessera::tests::TemporaryFolder folder_;
  tessera::Served served_;
  std::unique_ptr<tessera::deploy::ChildProcess> worker_;
  std::unique_ptr<tessera::coordinator::HttpClient> http_;
  std::unique_ptr<tessera::v1::Inference::Stub> stub_;
};

// The samples of one idle time over one door.
struct Cell {
  int door = 0;
  double idle_seconds = 0;
  std::vector<double> seconds;  // sorted once measured

  double median() const { return seconds[seconds.size() / 2]; }
  double max() const { return seconds.back(); }
};

// Takes `samples` of each cell, in an order that mixes them, by all pairs at once.
void Measure(const std::vector<std::unique_ptr<Pair>>& pairs, const std::vector<Cell*>& cells,
             int samples) {
  std::vector<Cell*> order;
  for (Cell* cell : cells) {
    cell->seconds.clear();
    order.insert(order.end(), static_cast<size_t>(samples), cell);
  }
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::mutex mutex;
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (const auto& pair : pairs) {
    threads.emplace_back([&, pair = pair.get()] {
      for (size_t i = next++; i < order.size(); i = next++) {
        const double seconds = pair->Measure(order[i]->door, order[i]->idle_seconds);
        std::lock_guard lock(mutex);
        order[i]->seconds.push_back(seconds);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Cell* cell : cells) std::sort(cell->seconds.begin(), cell->seconds.end());
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int at, double otherwise) {
    return argc > at ? std::atof(argv[at]) : otherwise;
  };
  const int samples = static_cast<int>(argument(1, 5));
  const int pair_count = static_cast<int>(argument(2, 10));
  const double first_seconds = argument(3, 0.5);
  const double last_seconds = argument(4, 3.5);
  const double max_median_ms = argument(5, 3);
  const double max_ms = argument(6, 20);

  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < pair_count; ++i) pairs.push_back(std::make_unique<Pair>(i));

  std::vector<Cell> cells;
  for (int door : {0, 1}) {
    cells.push_back({.door = door, .idle_seconds = kBaselineSeconds, .seconds = {}});
    const int steps = static_cast<int>((last_seconds - first_seconds) / kStepSeconds + 0.5);
    for (int i = 0; i <= steps; ++i) {
      cells.push_back(
          {.door = door, .idle_seconds = first_seconds + i * kStepSeconds, .seconds = {}});
    }
  }
  double baseline_ms[2] = {};
  std::vector<Cell*> left;
  for (Cell& cell : cells) left.push_back(&cell);
  for (int round = 1; round <= kRounds && !left.empty(); ++round) {
    // The baseline is measured after each round, from ten times as many samples.
    std::vector<Cell*> wanted;
    for (Cell& cell : cells) {
      if (cell.idle_seconds == kBaselineSeconds) wanted.push_back(&cell);
    }
    Measure(pairs, left, samples);
    Measure(pairs, wanted, 10 * samples);
    for (const Cell* cell : wanted) baseline_ms[cell->door] = 1e3 * cell->median();
    left.clear();
    for (Cell& cell : cells) {
      const double base = baseline_ms[cell.door];
      if (cell.idle_seconds != kBaselineSeconds &&
          (1e3 * cell.median() - base > max_median_ms || 1e3 * cell.max() - base > max_ms)) {
        left.push_back(&cell);
      }
    }
    std::printf("round %d: %zu idle times beyond a bar\n", round, left.size());
    std::fflush(stdout);
  }
  for (int door : {0, 1}) {
    const double base = baseline_ms[door];
    std::vector<const Cell*> of_door;
    for (const Cell& cell : cells) {
      if (cell.door == door && cell.idle_seconds != kBaselineSeconds) of_door.push_back(&cell);
    }
    std::sort(of_door.begin(), of_door.end(),
              [](const Cell* a, const Cell* b) { return a->median() > b->median(); });
    double most_ms = 0;
    for (const Cell* cell : of_door) most_ms = std::max(most_ms, 1e3 * cell->max() - base);
    std::printf(
        "%s: %.2f ms after %.1f s; over all idle times at most %+.1f ms in the median (bar %.0f), "
        "%+.1f ms in any (bar %.0f); largest medians:\n",
        kDoors[door], base, kBaselineSeconds, 1e3 * of_door.front()->median() - base, max_median_ms,
        most_ms, max_ms);
    for (size_t i = 0; i < std::min<size_t>(6, of_door.size()); ++i) {
      std::printf("  %.2f s: median %+.1f ms, max %+.1f ms\n", of_door[i]->idle_seconds,
                  1e3 * of_door[i]->median() - base, 1e3 * of_door[i]->max() - base);
    }
  }
  std::printf("%s\n", left.empty() ? "ok" : "BEYOND THE BAR");
  return left.empty() ? 0 : 1;
}
