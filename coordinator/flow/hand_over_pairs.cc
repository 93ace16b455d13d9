#include "coordinator/flow/hand_over_pairs.h"

#include <algorithm>
#include <cmath>

namespace tessera::coordinator {
namespace {

constexpr double kFirstBackOffSeconds = 1;
constexpr double kMaxBackOffSeconds = 60;

}  // namespace

HandOverPairs::HandOverPairs(const v1::DeploymentPlan& plan) {
  const auto& routes = plan.routing();
  const bool pairs = std::any_of(routes.begin(), routes.end(), [](const v1::RoutingShare& route) {
    return route.prefill_replica() != route.decode_replica();
  });
  if (!pairs) return;
  for (const v1::RoutingShare& route : routes) {
    Pair& pair = shares_[route.prefill_replica()][route.decode_replica()];
    pair.share += route.share();
    if (route.kv_codec() == "int8") pair.codec = v1::KV_CODEC_INT8;
    if (route.kv_codec() == "int4") pair.codec = v1::KV_CODEC_INT4;
    pair.record.prefill = route.prefill_replica();
    pair.record.decode = route.decode_replica();
  }
}

bool HandOverPairs::Prefills(const std::string& replica) const {
  return shares_.empty() || shares_.contains(replica);
}

bool HandOverPairs::Decodes(const std::string& replica) const {
  return shares_.empty() || std::any_of(shares_.begin(), shares_.end(), [&](const auto& entry) {
           return entry.second.contains(replica);
         });
}

std::string HandOverPairs::Choose(const std::string& prefill, const std::set<std::string>& ready,
                                  double now_seconds) {
  const auto pairs = shares_.find(prefill);
  if (pairs == shares_.end()) return prefill;
  Pair* best = nullptr;
  double least = 0;
  for (auto& [decode, pair] : pairs->second) {
    if (pair.share <= 0 || !ready.contains(decode) || now_seconds < pair.not_before_seconds)
      continue;
    const double load = (pair.chosen + 1) / pair.share;
    if (best != nullptr && load >= least) continue;
    best = &pair;
    least = load;
  }
  if (best == nullptr) return prefill;
  best->chosen += 1;
  return best->record.decode;
}

v1::KvCodec HandOverPairs::CodecOf(const std::string& prefill, const std::string& decode) const {
  const auto pairs = shares_.find(prefill);
  if (pairs == shares_.end()) return v1::KV_CODEC_RAW;
  const auto pair = pairs->second.find(decode);
  return pair == pairs->second.end() ? v1::KV_CODEC_RAW : pair->second.codec;
}

void HandOverPairs::NoteArrived(const std::string& prefill, const std::string& decode,
                                const v1::KvTransfer& transfer) {
  if (!shares_.contains(prefill) || !shares_[prefill].contains(decode)) return;
  Pair& pair = shares_[prefill][decode];
  pair.failures_in_a_row = 0;
  pair.not_before_seconds = 0;
  ++pair.record.prompts;
  pair.record.bytes += transfer.bytes();
  pair.record.seconds += transfer.seconds();
  pair.record.transport = transfer.transport();
}

double HandOverPairs::NoteFailed(const std::string& prefill, const std::string& decode,
                                 double now_seconds) {
  if (!shares_.contains(prefill) || !shares_[prefill].contains(decode)) return 0;
  Pair& pair = shares_[prefill][decode];
  ++pair.record.failures;
  // Prompts that were on the way together fail together, and count once.
  if (now_seconds >= pair.not_before_seconds) {
    const double wait = kFirstBackOffSeconds * std::exp2(std::min(pair.failures_in_a_row++, 10));
    pair.not_before_seconds = now_seconds + std::min(wait, kMaxBackOffSeconds);
  }
  return pair.not_before_seconds - now_seconds;
}

std::vector<HandOverRecord> HandOverPairs::Records(double now_seconds) const {
  std::vector<HandOverRecord> records;
  for (const auto& [prefill, pairs] : shares_) {
    for (const auto& [decode, pair] : pairs) {
      if (prefill == decode) continue;
      records.push_back(pair.record);
      records.back().back_off_seconds = std::max(0.0, pair.not_before_seconds - now_seconds);
    }
  }
  return records;
}

}  // namespace tessera::coordinator
