#include "coordinator/activity_line.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace tessera::coordinator {
namespace {

double Percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace

std::string ActivityLine(const v1::GetClusterReply& cluster) {
  double prompt = 0, generation = 0;
  for (const v1::ReplicaStatus& replica : cluster.replicas()) {
    prompt += replica.prompt_tokens_per_second();
    generation += replica.generation_tokens_per_second();
  }
  if (cluster.requests_in_flight() == 0 && prompt + generation == 0) return "";
  int64_t blocks = 0, used = 0, hits = 0, queries = 0;
  for (const v1::WorkerStatus& worker : cluster.workers()) {
    blocks += worker.load().kv_blocks_total();
    used += worker.load().kv_blocks_used();
    hits += static_cast<int64_t>(worker.load().prefix_hits_tokens());
    queries += static_cast<int64_t>(worker.load().prefix_queries_tokens());
  }
  return absl::StrFormat(
      "prompt %.1f tok/s, generation %.1f tok/s, requests %d, sequences running %d, waiting %d, KV "
      "%.1f %%, prefix hits %.1f %%",
      prompt, generation, cluster.requests_in_flight(), cluster.sequences_running(),
      cluster.sequences_waiting(), Percent(used, blocks), Percent(hits, queries));
}

}  // namespace tessera::coordinator
