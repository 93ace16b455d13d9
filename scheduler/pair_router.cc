#include "scheduler/pair_router.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace tessera::scheduler {
namespace {

// How a request may go.
struct Way {
  int prefill = -1;
  int decode = -1;
  int pair = -1;
};

class Choice {
 public:
  Choice(std::span<const ReplicaLoad> replicas, std::span<const PairLoad> pairs,
         const RouteRequest& request)
      : replicas_(replicas),
        pairs_(pairs),
        request_(request),
        fastest_(FastestOf(replicas)),
        fastest_kv_(FastestKv(pairs)) {}

  Route Make() {
    std::vector<Way> ways;
    for (size_t i = 0; i < pairs_.size(); ++i) AddWay(static_cast<int>(i), &ways);
    KeepWithinShares(&ways);
    if (!request_.alone && !request_.begun) AddLeftAlone(&ways);
    for (const bool prompt_fits : {true, false}) {
      for (size_t i = 0; ways.empty() && i < replicas_.size(); ++i) AddAlone(i, prompt_fits, &ways);
    }
    Route best;
    double least = std::numeric_limits<double>::infinity();
    for (const Way& way : ways) {
      Route route;
      const double seconds = Seconds(way, &route);
      if (seconds >= least) continue;
      least = seconds;
      best = route;
    }
    return best;
  }

 private:
  // The rate of a pair that was never measured, as for replicas: the best that is known.
  static double FastestKv(std::span<const PairLoad> pairs) {
    double least = 0;
    for (const PairLoad& pair : pairs) {
      const double known = pair.kv_seconds_per_token;
      if (known > 0 && (least == 0 || known < least)) least = known;
    }
    return least;
  }

  const ReplicaLoad& At(int replica) const { return replicas_[static_cast<size_t>(replica)]; }

  bool TakesPrompt(int replica) const {
    return replica >= 0 && At(replica).ready &&
           (At(replica).kv_tokens == 0 || request_.prompt_tokens <= At(replica).kv_tokens);
  }

  // An answer may become as long as anywhere: as is asked for, or as the prefill replica has room.
  bool HandsOver(const PairLoad& pair) const {
    if (pair.left_out || pair.decode < 0 || !TakesPrompt(pair.prefill) || !At(pair.decode).ready)
      return false;
    const int64_t asked = request_.prompt_tokens +
                          request_.expected_output_tokens / std::max<int64_t>(1, request_.choices);
    const int64_t there = At(pair.prefill).kv_tokens, here = At(pair.decode).kv_tokens;
    return here == 0 || (there == 0 ? asked : std::min(asked, there)) <= here;
  }

  void AddWay(int index, std::vector<Way>* ways) {
    const PairLoad& pair = pairs_[static_cast<size_t>(index)];
    if (pair.prefill == pair.decode || request_.alone || request_.begun) {
      const int replica = request_.begun ? pair.decode : pair.prefill;
      if (TakesPrompt(replica)) ways->push_back({replica, replica, index});
    } else if (HandsOver(pair)) {
      ways->push_back({pair.prefill, pair.decode, index});
      paired_.resize(replicas_.size(), false);
      paired_[static_cast<size_t>(pair.prefill)] = true;
      paired_[static_cast<size_t>(pair.decode)] = true;
    }
  }

  double SlowdownOf(const Way& way) const {
    return std::max(At(way.prefill).slowdown, At(way.decode).slowdown);
  }

  void KeepWithinShares(std::vector<Way>* ways) const {
    double shares = 0, counts = 0;
    bool some_slow = false, some_usual = false;
    for (const Way& way : *ways) {
      const PairLoad& pair = pairs_[static_cast<size_t>(way.pair)];
      shares += pair.share;
      counts += pair.count;
      some_slow |= SlowdownOf(way) > 1;
      some_usual |= SlowdownOf(way) <= 1 && pair.share > 0;
    }
    if (shares <= 0) return;
    const bool uneven = some_slow && some_usual;
    std::erase_if(*ways, [&](const Way& way) {
      const PairLoad& pair = pairs_[static_cast<size_t>(way.pair)];
      const double slowdown = uneven ? SlowdownOf(way) : 1;
      if (pair.share <= 0 || (uneven && slowdown <= 1)) return pair.share <= 0;
      return pair.count + 1 > pair.share / slowdown / shares * (counts + 1) + kShareSlack;
    });
  }

  // Replicas of pairs none of which can hand the request over; those that prefill first.
  void AddLeftAlone(std::vector<Way>* ways) {
    paired_.resize(replicas_.size(), false);
    for (const bool prefill : {true, false}) {
      for (const PairLoad& pair : pairs_) {
        const int replica = prefill ? pair.prefill : pair.decode;
        if (pair.prefill == pair.decode || !TakesPrompt(replica)) continue;
        if (paired_[static_cast<size_t>(replica)]) continue;
        paired_[static_cast<size_t>(replica)] = true;
        ways->push_back({replica, replica, -1});
      }
    }
  }

  void AddAlone(size_t replica, bool prompt_fits, std::vector<Way>* ways) const {
    const int index = static_cast<int>(replica);
    if (prompt_fits ? TakesPrompt(index) : At(index).ready) ways->push_back({index, index, -1});
  }

  double Seconds(const Way& way, Route* route) const {
    const ReplicaLoad& decode = At(way.decode);
    const ReplicaOutlook outlook = OutlookAt(At(way.prefill), fastest_, request_);
    *route = {.prefill_replica = way.prefill,
              .decode_replica = way.decode,
              .expected_first_token_seconds = outlook.first_token_seconds,
              .pair = way.pair};
    if (way.prefill == way.decode) return outlook.first_token_seconds + outlook.decode_seconds;
    const PairLoad& pair = pairs_[static_cast<size_t>(way.pair)];
    const double per_token =
        pair.kv_seconds_per_token > 0 ? pair.kv_seconds_per_token : fastest_kv_;
    route->expected_kv_seconds = UnhiddenKvSeconds(
        std::max<int64_t>(0, request_.prompt_tokens - decode.cached_prefix_tokens), per_token,
        pair.layers, outlook.prompt_seconds);
    return outlook.first_token_seconds + route->expected_kv_seconds +
           OutlookAt(decode, fastest_, request_).decode_seconds;
  }

  const std::span<const ReplicaLoad> replicas_;
  const std::span<const PairLoad> pairs_;
  const RouteRequest& request_;
  const FastestRates fastest_;
  const double fastest_kv_;
  std::vector<bool> paired_;  // by replica: some pair of its can hand over; empty: none
};

}  // namespace

Route ChoosePair(std::span<const ReplicaLoad> replicas, std::span<const PairLoad> pairs,
                 const RouteRequest& request) {
  return pairs.empty() ? ChooseReplica(replicas, request) : Choice(replicas, pairs, request).Make();
}

// As scheduler/cost/kv_transfer: all but one layer's share may be sent while later layers are
// computed.
double UnhiddenKvSeconds(int64_t tokens, double kv_seconds_per_token, int layers,
                         double prompt_seconds) {
  const double way = static_cast<double>(tokens) * kv_seconds_per_token;
  const double part = 1.0 / std::max(1, layers);
  return std::max(way * part, way - (1 - part) * prompt_seconds);
}

void NoteRouted(int pair, std::span<PairLoad> pairs) {
  if (pair < 0) return;
  for (PairLoad& other : pairs) other.count *= 1 - 1 / kShareWindow;
  pairs[static_cast<size_t>(pair)].count += 1;
}

double KvWaySeconds(double seconds, double exposed_seconds, int layers) {
  return std::min(seconds, layers * exposed_seconds);
}

void NoteKvMoved(int64_t tokens, double seconds, double exposed_seconds, PairLoad* pair) {
  if (tokens <= 0 || seconds <= 0 || exposed_seconds <= 0) return;
  const double way = KvWaySeconds(seconds, exposed_seconds, pair->layers);
  pair->kv_seconds_per_token =
      Smoothed(pair->kv_seconds_per_token, way / static_cast<double>(tokens));
}

}  // namespace tessera::scheduler
