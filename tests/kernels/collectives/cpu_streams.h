// CPU streams without a device: what collectives need of one. Thread rule: as kernels/device.h for
// each stream. Ends the process where there are no threads; nothing can be tested then.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/thread_pool.h"
#include "third_party/linux/cpu_share.h"

namespace tessera::tests {

class CpuStreams {
 public:
  // All on one core, which others use too.
  explicit CpuStreams(int count) {
    auto pool =
        kernels::ThreadPool::Create({.cores = {AffinityCores().front()}, .cores_shared = true});
    if (!pool.ok()) std::abort();
    pool_ = *std::move(pool);
    for (int i = 0; i < count; ++i) {
      auto stream = kernels::CpuStream::Create(pool_.get());
      if (!stream.ok()) std::abort();
      streams_.push_back(*std::move(stream));
    }
  }

  kernels::Stream& operator[](size_t index) const { return *streams_[index]; }

 private:
  std::unique_ptr<kernels::ThreadPool> pool_;
  std::vector<std::unique_ptr<kernels::CpuStream>> streams_;
};

}  // namespace tessera::tests
