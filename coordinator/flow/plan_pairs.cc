#include "coordinator/flow/plan_pairs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/layers/layers.h"

namespace tessera::coordinator {
namespace {

constexpr double kFirstBackOffSeconds = 1;
constexpr double kMaxBackOffSeconds = 60;

int IndexOf(const std::string& name, const std::vector<std::string>& sorted) {
  const auto found = std::lower_bound(sorted.begin(), sorted.end(), name);
  return found == sorted.end() || *found != name ? -1 : static_cast<int>(found - sorted.begin());
}

}  // namespace

PlanPairs::PlanPairs(const v1::DeploymentPlan& plan) {
  for (const v1::RoutingShare& route : plan.routing()) {
    int at = Find(route.prefill_replica(), route.decode_replica());
    if (at < 0) {
      at = static_cast<int>(pairs_.size());
      Pair& pair = pairs_.emplace_back();
      pair.record.prefill = route.prefill_replica();
      pair.record.decode = route.decode_replica();
      loads_.push_back(
          {.layers = static_cast<int>(std::max<int64_t>(1, LayerCount(plan.model())))});
    }
    loads_[at].share += route.share();
    if (route.kv_codec() == "int8") pairs_[at].codec = v1::KV_CODEC_INT8;
    if (route.kv_codec() == "int4") pairs_[at].codec = v1::KV_CODEC_INT4;
  }
}

bool PlanPairs::SamePairs(const PlanPairs& other) const {
  if (pairs_.size() != other.pairs_.size()) return false;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const HandOverRecord& record = pairs_[i].record;
    const int at = other.Find(record.prefill, record.decode);
    if (at < 0 || loads_[i].share != other.loads_[at].share ||
        pairs_[i].codec != other.pairs_[at].codec) {
      return false;
    }
  }
  return true;
}

int PlanPairs::Find(const std::string& prefill, const std::string& decode) const {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& pair) {
    return pair.record.prefill == prefill && pair.record.decode == decode;
  });
  return found == pairs_.end() ? -1 : static_cast<int>(found - pairs_.begin());
}

std::vector<scheduler::PairLoad> PlanPairs::Snapshot(const std::vector<std::string>& replicas,
                                                     double now_seconds) const {
  std::vector<scheduler::PairLoad> loads = loads_;
  for (size_t i = 0; i < loads.size(); ++i) {
    loads[i].prefill = IndexOf(pairs_[i].record.prefill, replicas);
    loads[i].decode = IndexOf(pairs_[i].record.decode, replicas);
    loads[i].left_out = now_seconds < pairs_[i].not_before_seconds;
  }
  return loads;
}

void PlanPairs::NoteRouted(int pair) { scheduler::NoteRouted(pair, loads_); }

void PlanPairs::RestartCounts() {
  for (scheduler::PairLoad& load : loads_) load.count = 0;
}

v1::KvCodec PlanPairs::CodecOf(const std::string& prefill, const std::string& decode) const {
  const int at = Find(prefill, decode);
  return at < 0 ? v1::KV_CODEC_RAW : pairs_[at].codec;
}

double PlanPairs::NoteArrived(const std::string& prefill, const std::string& decode, int64_t tokens,
                              const v1::KvTransfer& transfer) {
  const int at = Find(prefill, decode);
  if (at < 0) return 0;
  Pair& pair = pairs_[at];
  pair.failures_in_a_row = 0;
  pair.not_before_seconds = 0;
  ++pair.record.prompts;
  pair.record.bytes += transfer.bytes();
  pair.record.seconds += transfer.seconds();
  const bool is_new =
      std::exchange(pair.record.transport, transfer.transport()) != transfer.transport();
  scheduler::NoteKvMoved(tokens, transfer.seconds(), transfer.exposed_seconds(), &loads_[at]);
  const double way =
      scheduler::KvWaySeconds(transfer.seconds(), transfer.exposed_seconds(), loads_[at].layers);
  // Where prefill hid all of it, the whole time bounds the rate.
  const double seconds = way > 0 ? way : transfer.seconds();
  return is_new && seconds > 0 ? static_cast<double>(transfer.bytes()) / seconds : 0;
}

double PlanPairs::NoteFailed(const std::string& prefill, const std::string& decode,
                             double now_seconds) {
  const int at = Find(prefill, decode);
  if (at < 0) return 0;
  Pair& pair = pairs_[at];
  ++pair.record.failures;
  // Prompts that were on the way together fail together, and count once.
  if (now_seconds >= pair.not_before_seconds) {
    const double wait = kFirstBackOffSeconds * std::exp2(std::min(pair.failures_in_a_row++, 10));
    pair.not_before_seconds = now_seconds + std::min(wait, kMaxBackOffSeconds);
  }
  return pair.not_before_seconds - now_seconds;
}

std::vector<HandOverRecord> PlanPairs::Records(double now_seconds) const {
  std::vector<HandOverRecord> records;
  for (const Pair& pair : pairs_) {
    if (pair.record.prefill == pair.record.decode) continue;
    records.push_back(pair.record);
    records.back().back_off_seconds = std::max(0.0, pair.not_before_seconds - now_seconds);
  }
  return records;
}

}  // namespace tessera::coordinator
