// The graphs of a stream, by what they were recorded for.
//
// Thread rule: the thread that enqueues finds and begins graphs, the stream's runner fills them in
// and launches them. Owns the graphs; they must not run any more when it ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "kernels/cuda/runtime.h"
#include "kernels/repeating_stream.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaGraphs {
 public:
  // Each takes memory of the device, which no Device::Allocate counts: some KB for a launch.
  static constexpr size_t kMaxGraphs = 128;

  struct Graph {
    enum class State { kBegun, kKept };
    std::atomic<State> state = State::kBegun;
    cudaGraphExec_t graph = nullptr;  // once it is kept
  };

  ~CudaGraphs();

  // Null where none is kept (yet).
  Graph* FindKept(const RepeatingStream::Key& key) const;
  // A graph that is to be captured now: the key comes for the second time. Null: it is not.
  Graph* ToRecord(const RepeatingStream::Key& key);
  // Ends the capture on the stream, and keeps its graph where it is `wanted`. False: it is not
  // kept; where CUDA does not take it, no more are.
  bool Keep(cudaStream_t stream, bool wanted, Graph& graph);
  RepeatingStream::Kept kept() const { return {kMaxGraphs, count_, bytes_}; }
  // No more are kept.
  void GiveUp() { works_ = false; }

 private:
  std::atomic<bool> works_ = true;
  std::atomic<int64_t> count_ = 0, bytes_ = 0;  // of those that are kept
  std::map<RepeatingStream::Key, std::unique_ptr<Graph>> graphs_;
  std::set<RepeatingStream::Key> seen_;  // once; all are forgotten now and then
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
