// A worker computes with its pool and nothing else: no library underneath starts threads of its
// own, neither at load nor while steps run.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <thread>

#include "tests/worker/model/tiny_model.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::worker {
namespace {

int64_t ThreadsOfThisProcess() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

// Threads that were joined leave /proc a little later.
int64_t SettledThreads(int64_t expected) {
  for (int i = 0; i < 200 && ThreadsOfThisProcess() != expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ThreadsOfThisProcess();
}

TEST_CASE("a model computes with one thread per core, and no other comes up") {
  const auto cores = static_cast<int64_t>(ReadCpuShare(AffinityCores()).cores.size());
  std::thread([] {}).join();  // a sanitizer's own thread comes with the first of ours
  SettledThreads(1);
  const int64_t before = ThreadsOfThisProcess();
  for (const std::string name : {"llama", "mixtral"}) {
    const GoldenRun run = ReadGolden(name)[1];
    for (const kernels::Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
      for (const kernels::DType weights :
           {kernels::DType::kF32, kernels::DType::kBF16, kernels::DType::kI8}) {
        INFO(name << ", " << kernels::Name(isa) << ", " << kernels::Name(weights));
        REQUIRE(SettledThreads(before) == before);
        TinyModel model(GoldenFolder(name), {.isa = isa, .weight_dtype = weights});
        // The pool's helpers, and the thread of the stream, which is the pool's first member.
        CHECK(SettledThreads(before + cores) == before + cores);
        const auto prompt_tokens = static_cast<int64_t>(run.prompt.size());
        model.Run({{.tokens = run.prompt, .prompt_tokens = prompt_tokens}});
        for (size_t i = 0; i < run.tokens.size(); ++i) {
          model.Run({{.tokens = {run.tokens[i]},
                      .first_position = prompt_tokens + static_cast<int64_t>(i),
                      .prompt_tokens = prompt_tokens}});
        }
        CHECK(SettledThreads(before + cores) == before + cores);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
