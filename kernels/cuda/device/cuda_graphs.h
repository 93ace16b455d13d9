// The graphs of a stream, by what they were recorded for.
//
// Where places run out, a new graph takes that of the least recently used one, if that has been
// idle for kIdleSteps: while more graphs than places are in use by turns, the first ones keep
// theirs, since capturing takes longer than launching.
//
// Thread rule: the thread that enqueues finds and begins graphs and takes places away; the stream's
// runner fills graphs in, launches and frees them. Owns the graphs; they must not run any more when
// it ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "kernels/cuda/runtime.h"
#include "kernels/graph_stream.h"

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {

class CudaGraphs {
 public:
  // Each takes memory of the device, which no Device::Allocate counts: some KB for a launch.
  static constexpr size_t kMaxGraphs = 128;
  static constexpr uint64_t kIdleSteps = 256;

  struct Graph {
    enum class State { kBegun, kKept };
    std::atomic<State> state = State::kBegun;
    cudaGraphExec_t graph = nullptr;  // once it is kept
    int64_t bytes = 0;                // that it took then
    uint64_t last_step = 0;           // the enqueuing thread's: when it was used
  };

  ~CudaGraphs();

  // Null where none is kept (yet). Counts a step.
  Graph* FindKept(const GraphStream::Key& key);
  // A graph that is to be captured now: the key comes for the second time. Null: it is not. What
  // had its place is moved to `evicted`, and must be given to Free by the runner, behind all that
  // was enqueued before; null: none had.
  Graph* ToRecord(const GraphStream::Key& key, std::unique_ptr<Graph>* evicted);
  // A graph that is running ends first, says CUDA.
  void Free(std::unique_ptr<Graph> graph);
  // Ends the capture on the stream, and keeps its graph where it is `wanted`. False: it is not
  // kept; where CUDA does not take it, no more are.
  bool Keep(cudaStream_t stream, bool wanted, Graph& graph);
  GraphStream::Kept kept() const { return {kMaxGraphs, count_, bytes_}; }
  // No more are kept.
  void GiveUp() { works_ = false; }

 private:
  std::atomic<bool> works_ = true;
  std::atomic<int64_t> count_ = 0, bytes_ = 0;  // of those that are kept
  // Takes its place away from the least recently used graph, if that is idle; else null.
  std::unique_ptr<Graph> TakeIdle();

  uint64_t steps_ = 0;
  std::map<GraphStream::Key, std::unique_ptr<Graph>> graphs_;
  std::set<GraphStream::Key> seen_;  // once; all are forgotten now and then
};

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
