#include "scheduler/cost/replica_cost.h"

#include <algorithm>
#include <cmath>

#include "scheduler/batcher.h"

namespace tessera::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A step full of prompt tokens beside b decode rows; pairs_per_token: attention work of the
// prompts.
StepWork FullPrefillWork(const ReplicaOptions& options, double b, double mean_context,
                         double pairs_per_token, double prompt_tokens) {
  const double budget = std::max(1.0, static_cast<double>(options.memory.max_step_tokens) - b);
  StepWork work;
  if (b > 0) work = DecodeWork(b, mean_context);
  work.may_draft = false;  // prompts take what drafts could have
  work.prefill_tokens = budget;
  work.prefill_attention_pairs = budget * pairs_per_token;
  const double prompts = prompt_tokens > 0 ? budget / prompt_tokens : 1.0;
  work.prefill_cached_tokens = std::max(prompts, 1.0) * pairs_per_token;
  work.sampled_rows += std::max(prompts, 1.0);
  return work;
}

// Rows of a step that prompts of so many rows fill: no more of them begin in one than the batcher
// admits, and no more run than it takes beside those that decode.
int64_t PromptRows(const ReplicaOptions& options, double prompt_rows, double decode_rows,
                   int micro_batches) {
  const double prompts = std::clamp(options.max_sequences / micro_batches - decode_rows, 1.0,
                                    static_cast<double>(kMaxAdmitted));
  const double rows = decode_rows + prompts * std::max(1.0, prompt_rows);
  return static_cast<int64_t>(
      std::min(static_cast<double>(options.memory.max_step_tokens), std::ceil(rows)));
}

ReplicaRate PrefillCapacity(const ModelShape& model, const ReplicaSpec& replica,
                            const LengthMoments& lengths, const ReplicaOptions& options,
                            ReplicaRate rate) {
  if (lengths.uncached_prompt_tokens <= 0) return rate;
  rate.micro_batches =
      replica.micro_batches > 0 ? replica.micro_batches : static_cast<int>(replica.stages.size());
  ReplicaOptions filled = options;
  filled.memory.max_step_tokens =
      PromptRows(options, lengths.uncached_prompt_tokens, 0, rate.micro_batches);
  const StepWork work = SteadyWork(Role::kPrefill, lengths, 0, filled);
  const Period period = PeriodOf(model, replica, work, rate.micro_batches);
  rate.prefill_tokens = work.prefill_tokens;
  rate.period_seconds = period.seconds;
  rate.slowest_stage = period.slowest_stage;
  rate.requests_per_second =
      work.prefill_tokens / (period.seconds * lengths.uncached_prompt_tokens);
  rate.limit = filled.memory.max_step_tokens < options.memory.max_step_tokens ? Limit::kSequences
                                                                              : Limit::kStepTokens;
  return rate;
}

struct RowsBound {
  double rows = kInfinity;
  Limit limit = Limit::kNothing;
  void Apply(double other, Limit why) {
    if (other < rows) *this = {other, why};
  }
};

// Largest b, per micro-batch, that KV, batcher and step allow, whatever its speed.
RowsBound BoundOfRows(Role role, const LengthMoments& lengths, const ReplicaOptions& options,
                      double kv_tokens, int micro_batches) {
  RowsBound bound;
  const double per_row =
      std::max(lengths.mean_decode_context(), options.least_sequence_tokens) * micro_batches;
  bound.Apply((1 - options.kv_headroom) * kv_tokens / per_row, Limit::kKv);
  bound.Apply(options.max_sequences / micro_batches, Limit::kSequences);
  if (role == Role::kBoth && lengths.uncached_prompt_tokens > 0)
    bound.Apply(static_cast<double>(kMaxAdmitted) * lengths.decode_steps, Limit::kSequences);
  const double q_per_row =
      role == Role::kBoth ? lengths.uncached_prompt_tokens / lengths.decode_steps : 0.0;
  bound.Apply(static_cast<double>(options.memory.max_step_tokens) / (1 + q_per_row),
              Limit::kStepTokens);
  return bound;
}

// Largest b in (0, bound] with TPOT within its limit; 0 if none. TPOT grows with b in few parts
// that are nearly straight: a range is cut where the line through its ends meets the limit, which
// is mostly next to the answer, and halved where it stays wide.
double LargestRowsWithinTpot(const ModelShape& model, const ReplicaSpec& replica,
                             const LengthMoments& lengths, const ReplicaOptions& options,
                             double bound, int micro_batches) {
  const double max_tpot = options.max_tpot_seconds;
  if (max_tpot == kInfinity) return bound;
  const auto tpot = [&](double b) {
    return micro_batches *
           PeriodOf(model, replica, SteadyWork(replica.role, lengths, b, options), micro_batches)
               .seconds;
  };
  constexpr int kMaxSteps = 60, kHalvingEvery = 3;
  constexpr double kClose = 1e-9, kAside = 0.4 * kClose;  // of b
  double above = tpot(bound) - max_tpot;                  // of the limit, at `high`
  if (above <= 0) return bound;
  double below = max_tpot - tpot(0);  // at `low`
  if (below < 0) return 0;
  double low = 0, high = bound, width = bound;
  int side = 0;  // of the limit, where the last one was: then the other end counts half
  for (int i = 1; i <= kMaxSteps && high - low > kClose * high; ++i) {
    double middle = low + (high - low) * below / (below + above);
    if (i % kHalvingEvery == 0) {
      if (high - low > width / 2) middle = (low + high) / 2;
      width = high - low;
    }
    middle = std::clamp(middle, low + kAside * high, high - kAside * high);
    const double over = tpot(middle) - max_tpot;
    if (over <= 0) {
      low = middle;
      below = -over;
      if (side < 0) above /= 2;
      side = -1;
    } else {
      high = middle;
      above = over;
      if (side > 0) below /= 2;
      side = 1;
    }
  }
  return low;
}

}  // namespace

// one.
StepWork SteadyWork(Role role, const LengthMoments& lengths, double b,
                    const ReplicaOptions& options) {
  if (role == Role::kPrefill || (role == Role::kBoth && lengths.decode_steps <= 0)) {
    const double prompt = std::max(1.0, lengths.uncached_prompt_tokens);
    return FullPrefillWork(options, 0, 0, lengths.prefill_pairs / prompt, prompt);
  }
  StepWork work = DecodeWork(std::max(b, 1.0), lengths.mean_decode_context());
  if (role != Role::kBoth || lengths.decode_steps <= 0) return work;
  const double prompts = b / lengths.decode_steps;  // begun and ended per step
  work.prefill_tokens = prompts * lengths.uncached_prompt_tokens;
  work.prefill_attention_pairs = prompts * lengths.prefill_pairs;
  // A chunk reads what its prompt has cached so far: on average pairs / tokens.
  if (lengths.uncached_prompt_tokens > 0) {
    work.prefill_cached_tokens =
        std::max(prompts, 1.0) * lengths.prefill_pairs / lengths.uncached_prompt_tokens;
  }
  work.sampled_rows += prompts;
  return work;
}

std::string_view Name(Role role) {
  switch (role) {
    case Role::kBoth: return "both";
    case Role::kPrefill: return "prefill";
    case Role::kDecode: return "decode";
  }
  return "?";
}

std::string_view Name(Limit limit) {
  switch (limit) {
    case Limit::kNothing: return "nothing";
    case Limit::kKv: return "KV memory";
    case Limit::kTpot: return "the allowed time per output token";
    case Limit::kStepTokens: return "the tokens that a step may have";
    case Limit::kSequences: return "how many sequences may run at once or begin in one step";
    case Limit::kObjectives: return "the latency objectives";
  }
  return "?";
}

namespace {

Period PeriodOfSteps(const ModelShape& model, const ReplicaSpec& replica, const StepWork& work,
                     int micro_batches) {
  Period period;
  double slowest_stage = 0, slowest_hop = 0;
  const size_t stages = replica.stages.size();
  StepTimer timer(model, work);
  double hop = 0;
  for (size_t j = 0; j < stages; ++j) {
    const double stage = timer.StageSeconds(replica.stages[j]);
    if (stage > slowest_stage) {
      slowest_stage = stage;
      period.slowest_stage = static_cast<int>(j);
    }
    period.latency_seconds += stage;
    if (stages == 1) continue;
    if (j + 1 == stages) {
      hop = TransferSeconds(replica.hops[j], kTokenIdBytes * work.sampled_rows);
    } else if (j == 0 || replica.hops[j] != replica.hops[j - 1] ||
               replica.stages[j + 1].communicator != replica.stages[j].communicator) {
      hop = HopSeconds(model, replica.hops[j], replica.stages[j + 1].communicator, work.rows());
    }
    if (hop > slowest_hop) {
      slowest_hop = hop;
      period.slowest_hop = static_cast<int>(j);
    }
    period.hops_seconds += hop;
    period.latency_seconds += hop;
  }
  period.slowest_stage_seconds = slowest_stage;
  period.slowest_hop_seconds = slowest_hop;
  period.hop_bound = slowest_hop > slowest_stage;
  period.seconds = std::max({slowest_stage, slowest_hop, period.latency_seconds / micro_batches});
  return period;
}

}  // namespace

DraftedStep DraftedStepOf(const ModelShape& model, const ReplicaSpec& replica, const StepWork& work,
                          int micro_batches) {
  if (!work.may_draft) return {work};
  return BestDrafts(model, work, micro_batches, [&](const StepWork& drafted) {
    return PeriodOfSteps(model, replica, drafted, micro_batches).seconds;
  });
}

Period PeriodOf(const ModelShape& model, const ReplicaSpec& replica, const StepWork& work,
                int micro_batches) {
  const DraftedStep step = DraftedStepOf(model, replica, work, micro_batches);
  Period period = PeriodOfSteps(model, replica, step.work, micro_batches);
  if (step.drafts == 0) return period;
  for (double* seconds : {&period.seconds, &period.latency_seconds, &period.hops_seconds,
                          &period.slowest_stage_seconds, &period.slowest_hop_seconds}) {
    *seconds /= step.tokens;
  }
  return period;
}

std::vector<double> BusyShares(const ModelShape& model, const ReplicaSpec& replica,
                               const StepWork& work, int micro_batches) {
  const StepWork drafted = DraftedStepOf(model, replica, work, micro_batches).work;
  const double period = PeriodOfSteps(model, replica, drafted, micro_batches).seconds;
  StepTimer timer(model, drafted);
  std::vector<double> shares;
  for (const StageSpec& stage : replica.stages)
    shares.push_back(timer.StageSeconds(stage) / period);
  return shares;
}

ReplicaOptions WithSeats(const ReplicaOptions& options, double seats) {
  ReplicaOptions within = options;
  within.max_sequences = std::min(within.max_sequences, seats);
  return within;
}

double LeastKvTokens(Role role, const LengthMoments& lengths, const ReplicaOptions& options) {
  if (role == Role::kPrefill) return lengths.max_sequence_tokens;
  return std::max(lengths.max_sequence_tokens, options.longest_request_tokens);
}

double LargestRows(Role role, const LengthMoments& lengths, const ReplicaOptions& options,
                   double kv_tokens, int micro_batches) {
  return BoundOfRows(role, lengths, options, kv_tokens, micro_batches).rows;
}

ReplicaRate CapacityOf(const ModelShape& model, const ReplicaSpec& replica,
                       const LengthMoments& lengths, const ReplicaOptions& options) {
  const KvCapacity room = KvCapacityOf(model, replica.stages, options.memory);
  ReplicaRate rate =
      CapacityWithKv(model, replica, lengths, WithSeats(options, room.seats), room.tokens);
  rate.kv_limiting_stage = room.limiting_stage;
  rate.seats = room.seats;
  return rate;
}

ReplicaRate CapacityWithKv(const ModelShape& model, const ReplicaSpec& replica,
                           const LengthMoments& lengths, const ReplicaOptions& options,
                           double kv_capacity_tokens) {
  ReplicaRate rate;
  rate.kv_capacity_tokens = kv_capacity_tokens;
  rate.limit = Limit::kKv;
  if (model.one_stage && replica.stages.size() > 1) return rate;
  if (kv_capacity_tokens <= 0 || kv_capacity_tokens < LeastKvTokens(replica.role, lengths, options))
    return rate;
  if (replica.role == Role::kPrefill || lengths.decode_steps <= 0) {
    return replica.role == Role::kDecode ? rate
                                         : PrefillCapacity(model, replica, lengths, options, rate);
  }
  const int stages = static_cast<int>(replica.stages.size());
  rate.micro_batches = replica.micro_batches > 0 ? replica.micro_batches : stages;
  RowsBound bound =
      BoundOfRows(replica.role, lengths, options, kv_capacity_tokens, rate.micro_batches);
  if (bound.rows < 1 && rate.micro_batches > 1) {
    rate.micro_batches = std::max(1, static_cast<int>(bound.rows * rate.micro_batches));
    bound = BoundOfRows(replica.role, lengths, options, kv_capacity_tokens, rate.micro_batches);
  }
  const double b =
      LargestRowsWithinTpot(model, replica, lengths, options, bound.rows, rate.micro_batches);
  rate.limit = b < bound.rows ? Limit::kTpot : bound.limit;
  if (b <= 0) return rate;
  const StepWork work = SteadyWork(replica.role, lengths, b, options);
  const Period period = PeriodOf(model, replica, work, rate.micro_batches);
  rate.drafts = DraftedStepOf(model, replica, work, rate.micro_batches).drafts;
  rate.decode_rows = b;
  rate.prefill_tokens = work.prefill_tokens;
  rate.period_seconds = period.seconds;
  rate.slowest_stage = period.slowest_stage;
  rate.tpot_seconds = rate.micro_batches * period.seconds;
  rate.requests_per_second = b / (period.seconds * lengths.decode_steps);
  rate.output_tokens_per_second = rate.requests_per_second * lengths.output_tokens;
  return rate;
}

double PrefillLatencySeconds(const ModelShape& model, const ReplicaSpec& replica,
                             double uncached_tokens, double cached_tokens,
                             const ReplicaOptions& options, double decode_rows, double mean_context,
                             std::vector<double>* full_chunks) {
  const double budget =
      std::max(1.0, static_cast<double>(options.memory.max_step_tokens) - decode_rows);
  const int chunks = std::max(1, static_cast<int>(std::ceil(uncached_tokens / budget)));
  const StepWork beside = decode_rows > 0 ? DecodeWork(decode_rows, mean_context) : StepWork();
  double seconds = 0, done = 0;
  for (int i = 0; i < chunks; ++i) {
    const bool last = i + 1 == chunks;
    const double tokens = std::min(budget, uncached_tokens - done);
    const bool known =
        !last && full_chunks != nullptr && static_cast<size_t>(i) < full_chunks->size();
    if (known) {
      seconds += (*full_chunks)[static_cast<size_t>(i)];
    } else {
      const StepWork work = beside + PrefillWork(tokens, cached_tokens + done, last);
      const Period period = PeriodOf(model, replica, work, static_cast<int>(replica.stages.size()));
      // A chunk starts when the one before has left the last stage, and its micro-batch comes
      // again.
      const double round = period.seconds * static_cast<double>(replica.stages.size());
      const double taken = last ? period.latency_seconds : std::max(period.latency_seconds, round);
      if (!last && full_chunks != nullptr) full_chunks->push_back(taken);
      seconds += taken;
    }
    done += tokens;
  }
  return seconds;
}

PrefillCost PrefillCostOf(const ModelShape& model, const ReplicaSpec& replica,
                          const RequestLengths& request, const ReplicaOptions& options,
                          int micro_batches, double decode_rows, double mean_context,
                          std::vector<double>* full_chunks) {
  const double q = std::max(1.0, request.prompt_tokens * (1 - request.prefix_hit_rate));
  const double c = std::max(0.0, request.prompt_tokens - q);
  ReplicaOptions filled = options;
  filled.memory.max_step_tokens = PromptRows(options, q, decode_rows, micro_batches);
  const StepWork full = FullPrefillWork(filled, decode_rows, mean_context, c + q / 2, q);
  return {
      q / full.prefill_tokens * PeriodOf(model, replica, full, micro_batches).seconds,
      PrefillLatencySeconds(model, replica, q, c, options, decode_rows, mean_context, full_chunks)};
}

double DecodeRowsAt(const ModelShape& model, const ReplicaSpec& replica,
                    const LengthMoments& lengths, const ReplicaOptions& options, int micro_batches,
                    double requests_per_second) {
  const double steps_per_second = requests_per_second * lengths.decode_steps;
  double b = 0;
  for (int i = 0; i < 200; ++i) {  // grows towards the fixed point
    const StepWork work = SteadyWork(replica.role, lengths, b, options);
    const double next = steps_per_second * PeriodOf(model, replica, work, micro_batches).seconds;
    const bool settled = std::abs(next - b) <= 1e-9 * std::max(next, 1e-9);
    b = std::min(next, options.max_sequences / micro_batches);
    if (settled) break;
  }
  return b;
}

}  // namespace tessera::scheduler
