#include "kernels/cuda/device/cuda_graphs.h"

#include <algorithm>
#include <utility>

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr size_t kMaxSeen = 1024;

}  // namespace

CudaGraphs::~CudaGraphs() {
  for (const auto& [key, graph] : graphs_) {
    if (graph->graph != nullptr) cudaGraphExecDestroy(graph->graph);
  }
}

CudaGraphs::Graph* CudaGraphs::FindKept(const GraphStream::Key& key) {
  ++steps_;
  const auto found = graphs_.find(key);
  if (found == graphs_.end() || found->second->state != Graph::State::kKept) return nullptr;
  found->second->last_step = steps_;
  return found->second.get();
}

std::unique_ptr<CudaGraphs::Graph> CudaGraphs::TakeIdle() {
  const auto oldest = std::min_element(
      graphs_.begin(), graphs_.end(),
      [](const auto& a, const auto& b) { return a.second->last_step < b.second->last_step; });
  if (oldest == graphs_.end() || oldest->second->last_step + kIdleSteps > steps_) return nullptr;
  return std::move(graphs_.extract(oldest).mapped());
}

CudaGraphs::Graph* CudaGraphs::ToRecord(const GraphStream::Key& key,
                                        std::unique_ptr<Graph>* evicted) {
  if (!works_ || graphs_.contains(key)) return nullptr;
  if (!seen_.contains(key)) {
    if (seen_.size() >= kMaxSeen) seen_.clear();
    seen_.insert(key);
    return nullptr;
  }
  if (graphs_.size() >= kMaxGraphs) {
    *evicted = TakeIdle();
    if (*evicted == nullptr) return nullptr;
  }
  seen_.erase(key);
  Graph* const graph = graphs_.emplace(key, std::make_unique<Graph>()).first->second.get();
  graph->last_step = steps_;
  return graph;
}

void CudaGraphs::Free(std::unique_ptr<Graph> graph) {
  if (graph->graph == nullptr) return;
  cudaGraphExecDestroy(graph->graph);
  --count_;
  bytes_ -= graph->bytes;
}

namespace {

int64_t FreeBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return static_cast<int64_t>(free_bytes);
}

}  // namespace

bool CudaGraphs::Keep(cudaStream_t stream, bool wanted, Graph& graph) {
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  bool kept = false;
  if (wanted) {
    const int64_t free_bytes = FreeBytes();
    // The first launch would take its memory else.
    kept = ended == cudaSuccess && captured != nullptr &&
           cudaGraphInstantiate(&graph.graph, captured, 0) == cudaSuccess &&
           cudaGraphUpload(graph.graph, stream) == cudaSuccess;
    if (kept) {
      graph.bytes = std::max<int64_t>(0, free_bytes - FreeBytes());
      ++count_;
      bytes_ += graph.bytes;
    } else {
      GiveUp();
    }
  }
  if (captured != nullptr) cudaGraphDestroy(captured);
  cudaGetLastError();  // or the next launch of this thread would return it
  if (kept) graph.state = Graph::State::kKept;
  return kept;
}

}  // namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM
