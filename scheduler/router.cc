#include "scheduler/router.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

// Seconds of decoding, shared with what runs there. A full replica makes a newcomer wait for a
// place: one sequence's worth of the work that is outstanding.
double DecodeSeconds(const ReplicaLoad& r, double rate, const RouteRequest& request) {
  const double own = static_cast<double>(request.expected_output_tokens) / rate;
  // Where all decode at once, what is outstanding delays nobody beyond the crowding.
  const double sharing = r.max_sequences == 0 ? 0.0
                                              : static_cast<double>(r.outstanding_output_tokens) /
                                                    static_cast<double>(r.max_sequences) / rate;
  const bool full = r.max_sequences > 0 && r.running_sequences >= r.max_sequences;
  const double place = full ? static_cast<double>(r.outstanding_output_tokens) /
                                  static_cast<double>(std::max<int64_t>(1, r.running_sequences)) /
                                  rate
                            : 0.0;
  // Each running sequence lengthens a step a little even where decoding is memory-bound.
  const double crowding = 1.0 + 0.02 * static_cast<double>(r.running_sequences);
  return own * crowding + sharing + place;
}

// The same observation `times` times over.
double Smooth(double old_value, double observed, int64_t times) {
  if (old_value <= 0) return observed;
  return observed + std::pow(0.8, static_cast<double>(times)) * (old_value - observed);
}

}  // namespace

double Smoothed(double old_value, double observed) { return Smooth(old_value, observed, 1); }

// A replica that was never measured is taken to be as fast as the fastest: else the first one that
// was would get everything, and the others never a request to be measured by. Where none is known
// only the ratio matters (a prompt token costs far less than an output token): batch-1 decode is
// memory-bound, prefill compute-bound; 32 is the usual order.
FastestRates FastestOf(std::span<const ReplicaLoad> replicas) {
  FastestRates rates;
  for (const ReplicaLoad& r : replicas) {
    if (!r.ready) continue;
    rates.prefill_tokens_per_second =
        std::max(rates.prefill_tokens_per_second, r.prefill_tokens_per_second);
    rates.decode_tokens_per_second =
        std::max(rates.decode_tokens_per_second, r.decode_tokens_per_second);
  }
  if (rates.prefill_tokens_per_second <= 0) rates.prefill_tokens_per_second = 3200;
  if (rates.decode_tokens_per_second <= 0) rates.decode_tokens_per_second = 100;
  return rates;
}

ReplicaOutlook OutlookAt(const ReplicaLoad& r, const FastestRates& fastest,
                         const RouteRequest& request) {
  const double prefill_rate = r.prefill_tokens_per_second > 0 ? r.prefill_tokens_per_second
                                                              : fastest.prefill_tokens_per_second;
  const double decode_rate = r.decode_tokens_per_second > 0 ? r.decode_tokens_per_second
                                                            : fastest.decode_tokens_per_second;
  const int64_t own = std::max<int64_t>(1, request.prompt_tokens - r.cached_prefix_tokens);
  return {.first_token_seconds = static_cast<double>(r.queued_prompt_tokens + own) / prefill_rate,
          .prompt_seconds = static_cast<double>(own) / prefill_rate,
          .decode_seconds = DecodeSeconds(r, decode_rate, request)};
}

void NoteSubmitted(int64_t prompt_tokens, int64_t sequences, int64_t output_tokens,
                   ReplicaLoad* load) {
  load->queued_prompt_tokens += prompt_tokens;
  load->running_sequences += sequences;
  load->outstanding_output_tokens += output_tokens;
}

void NotePromptComputed(int64_t prompt_tokens, int64_t computed_tokens, double prefill_seconds,
                        ReplicaLoad* load) {
  load->queued_prompt_tokens -= prompt_tokens;
  if (prefill_seconds <= 0 || computed_tokens <= 0) return;
  load->prefill_tokens_per_second = Smoothed(
      load->prefill_tokens_per_second, static_cast<double>(computed_tokens) / prefill_seconds);
}

void NoteTokenGap(int64_t tokens, double gap_seconds, ReplicaLoad* load) {
  load->decode_tokens_per_second = Smooth(load->decode_tokens_per_second, 1 / gap_seconds, tokens);
}

Route ChooseReplica(std::span<const ReplicaLoad> replicas, const RouteRequest& request) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Candidate {
    int replica = -1;
    double seconds = kNever;
  };
  const auto keep_better = [](Candidate& best, size_t replica, double seconds) {
    if (seconds < best.seconds) best = {static_cast<int>(replica), seconds};
  };
  // One that does both keeps its own KV; one that only prefills hands over to one that only
  // decodes. The two halves of such a pair do not depend on each other.
  Candidate both, prefill, decode;
  const FastestRates fastest = FastestOf(replicas);
  for (size_t i = 0; i < replicas.size(); ++i) {
    const ReplicaLoad& r = replicas[i];
    if (!r.ready) continue;
    const ReplicaOutlook outlook = OutlookAt(r, fastest, request);
    if (r.can_prefill && r.can_decode) {
      keep_better(both, i, outlook.first_token_seconds + outlook.decode_seconds);
    } else if (r.can_prefill) {
      keep_better(prefill, i, outlook.first_token_seconds);
    } else if (r.can_decode) {
      keep_better(decode, i, outlook.decode_seconds);
    }
  }
  Route route;
  const double apart = prefill.seconds + decode.seconds;
  if (std::min(both.seconds, apart) == kNever) return route;
  const bool together = both.seconds <= apart;
  route.prefill_replica = together ? both.replica : prefill.replica;
  route.decode_replica = together ? both.replica : decode.replica;
  route.expected_first_token_seconds =
      OutlookAt(replicas[route.prefill_replica], fastest, request).first_token_seconds;
  return route;
}

std::string Explain(const Route& route, std::span<const ReplicaLoad> replicas) {
  if (route.prefill_replica < 0) {
    const auto ready = std::count_if(replicas.begin(), replicas.end(),
                                     [](const ReplicaLoad& r) { return r.ready; });
    return absl::StrFormat("no route: %d of %d replicas are ready", ready, replicas.size());
  }
  const ReplicaLoad& r = replicas[route.prefill_replica];
  std::string text = absl::StrFormat(
      "replica %d: first token expected in %.3f s (%d prompt tokens queued, %d sequences running)",
      route.prefill_replica, route.expected_first_token_seconds, r.queued_prompt_tokens,
      r.running_sequences);
  if (route.decode_replica == route.prefill_replica) return text;
  absl::StrAppendFormat(&text,
                        ", then replica %d: KV expected %.3f s later (%d sequences running, %d "
                        "tokens expected)",
                        route.decode_replica, route.expected_kv_seconds,
                        replicas[route.decode_replica].running_sequences,
                        replicas[route.decode_replica].outstanding_output_tokens);
  return text;
}

}  // namespace tessera::scheduler
