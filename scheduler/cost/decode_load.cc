// What a split pair does: attainment.h, with the prompt computed here and the rest there.
#include <algorithm>
#include <limits>
#include <numeric>

#include "scheduler/cost/attainment.h"
#include "scheduler/cost/hand_over_bytes.h"

namespace tessera::scheduler {

double DecodeLoad::mean_tpot_seconds() const {
  if (tpot_seconds.empty()) return 0;
  return std::accumulate(tpot_seconds.begin(), tpot_seconds.end(), 0.0) /
         static_cast<double>(tpot_seconds.size());
}

Attained AttainmentModel::At(const PrefillSpeed& speed, double rate, const DecodeLoad& decode,
                             const KvPath* path) const {
  const PrefillSpeed behind = BehindOthers(speed, rate);
  std::vector<Chance> chances(std::max<size_t>(1, decode.tpot_seconds.size()));
  for (size_t k = 0; k < chances.size(); ++k) {
    chances[k].weight = 1.0 / static_cast<double>(chances.size());
    chances[k].speed = &behind;
    chances[k].tpot_seconds = decode.tpot_seconds.empty() ? 0 : decode.tpot_seconds[k];
  }
  return Expect(chances, {1, WaitForStep(speed, behind, rate), decode.room},
                path == nullptr ? SentSeconds() : SentOf(speed, *path));
}

ReplicaCurve AttainmentModel::DecodeCurveOf(const ReplicaSpec& replica, int micro_batches,
                                            double kv_capacity_tokens,
                                            double most_sequences) const {
  ReplicaCurve curve;
  const double context = std::max(1.0, lengths_.mean_decode_context());
  curve.kv_tokens = std::max(0.0, kv_capacity_tokens - lengths_.prompt_tokens / 2);
  curve.most_at_once = most_sequences;
  curve.step_tokens = most_sequences;
  curve.stages = static_cast<double>(replica.stages.size());
  const double most = std::max(1.0, std::min(most_sequences, curve.kv_tokens / context));
  curve.points = PointsOf(replica, micro_batches, most, most_sequences);
  return curve;
}

DecodeLoad AttainmentModel::LoadOf(const ReplicaCurve& decode, double rate,
                                   double kept_tokens) const {
  if (lengths_.decode_steps <= 0) return {};  // nothing comes here
  const double context = std::max(1.0, lengths_.mean_decode_context());
  const double room = (decode.kv_tokens - kept_tokens) / context;
  const LoadAsked asked = AskedOf(rate, std::max(1.0, std::min(decode.most_at_once, room)));
  const auto completions = [&](double n) { return CompletionsAt(decode, n, 0); };
  const LoadDistribution load = LoadAt(asked, completions);
  DecodeLoad out;
  for (const double n : load.sequences)
    out.tpot_seconds.push_back(PaceAt(decode, n + 1, 0).tpot_seconds);
  out.room = load.wait;
  if (room < 1 || rate > kBusiest * completions(asked.most))
    out.room = {1, std::numeric_limits<double>::infinity()};
  return out;
}

AttainmentModel::SentSeconds AttainmentModel::SentOf(const PrefillSpeed& speed,
                                                     const KvPath& path) const {
  SentSeconds sent;
  RawKv kv = HandedOver(model_, 0);
  const double token_bytes = KvBytesPerToken(model_);
  for (size_t c = 0; c < classes_.size(); ++c) {
    std::vector<double>& seconds = sent.emplace_back();
    for (size_t i = 0; i < classes_[c].samples.size(); ++i) {
      const RequestLengths& sample = classes_[c].samples[i];
      kv.bytes = sample.prompt_tokens * token_bytes;
      seconds.push_back(sample.output_tokens <= 1
                            ? 0
                            : TransferKv(kv, path.link, model_.layers, speed.latency_seconds[c][i],
                                         path.codec, path.codec_rates)
                                  .unhidden_seconds);
    }
  }
  return sent;
}

double AttainmentModel::KeptBefore(const PrefillSpeed& speed, double rate,
                                   const KvPath& path) const {
  const SentSeconds sent = SentOf(speed, path);
  const PrefillSpeed behind = BehindOthers(speed, rate);
  const double wait = WaitForStep(speed, behind, rate).mean();
  double kept = 0;
  ForEachSample([&](size_t c, size_t i, double part) {
    const RequestLengths& sample = classes_[c].samples[i];
    if (sample.output_tokens <= 1) return;  // it stays where it is computed
    kept += part * sample.prompt_tokens * (wait + behind.latency_seconds[c][i] + sent[c][i]);
  });
  return kept;
}

}  // namespace tessera::scheduler
