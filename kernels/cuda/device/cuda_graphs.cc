#include "kernels/cuda/device/cuda_graphs.h"

#include <algorithm>

namespace tessera::kernels::cuda::TESSERA_CUDA_PLATFORM {
namespace {

constexpr size_t kMaxSeen = 1024;

}  // namespace

CudaGraphs::~CudaGraphs() {
  for (const auto& [key, graph] : graphs_) {
    if (graph->graph != nullptr) cudaGraphExecDestroy(graph->graph);
  }
}

CudaGraphs::Graph* CudaGraphs::FindKept(const RepeatingStream::Key& key) const {
  const auto found = graphs_.find(key);
  const bool kept = found != graphs_.end() && found->second->state == Graph::State::kKept;
  return kept ? found->second.get() : nullptr;
}

CudaGraphs::Graph* CudaGraphs::ToRecord(const RepeatingStream::Key& key) {
  if (!works_ || graphs_.size() >= kMaxGraphs || graphs_.contains(key)) return nullptr;
  if (seen_.erase(key) == 0) {
    if (seen_.size() >= kMaxSeen) seen_.clear();
    seen_.insert(key);
    return nullptr;
  }
  return graphs_.emplace(key, std::make_unique<Graph>()).first->second.get();
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
      ++count_;
      bytes_ += std::max<int64_t>(0, free_bytes - FreeBytes());
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
