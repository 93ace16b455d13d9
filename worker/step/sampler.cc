#include "worker/step/sampler.h"

#include <algorithm>
#include <cmath>

namespace tessera::worker {
namespace {

using kernels::DType;
using kernels::TensorView;

// One entry list of a group: more entries than this and the group is split. A single row always
// fits.
constexpr int64_t kMinEntries = 1 << 16;

int64_t BiasEntries(const SampleRequest& request) {
  return request.params->logit_bias_size() + static_cast<int64_t>(request.banned.size());
}

int64_t HistoryEntries(const SampleRequest& request) {
  return static_cast<int64_t>(request.history_ids.size());
}

// Ids are unique within a row, and a ban or bias may name each id once.
int64_t HistoryCapacity(const SamplerLimits& limits) {
  return std::max(kMinEntries, std::min(limits.max_sequence_tokens, limits.vocabulary));
}

int64_t BiasCapacity(const SamplerLimits& limits) {
  return std::max(kMinEntries, 2 * limits.vocabulary);
}

// How many of `requests` go into one Sample call of up to `max_rows` rows: as many as the entry
// lists hold.
size_t GroupSize(const SamplerLimits& limits, std::span<const SampleRequest> requests,
                 int64_t max_rows) {
  int64_t history = 0, bias = 0;
  size_t count = 0;
  for (; count < requests.size() && static_cast<int64_t>(count) < max_rows; ++count) {
    history += HistoryEntries(requests[count]);
    bias += BiasEntries(requests[count]);
    const bool fits = history <= HistoryCapacity(limits) && bias <= BiasCapacity(limits);
    if (!fits && count > 0) break;
  }
  return count;
}

TensorView RowsOf(const TensorView& view, int64_t begin, int64_t count) {
  TensorView rows = view.Rows(count);
  rows.data += begin * view.row_stride * kernels::SizeInBytes(view.dtype);
  return rows;
}

}  // namespace

size_t TokenHistory::Entry(int32_t id) {
  const auto [it, inserted] = entry_of_id_.try_emplace(id, ids_.size());
  if (inserted) {
    ids_.push_back(id);
    counts_.push_back(0);
  }
  return it->second;
}

// Host staging, once for each of kSteps, and device memory of equal layout.
struct Sampler::State {
  SamplerLimits limits;
  kernels::Ops* ops = nullptr;
  int64_t history_capacity = 0;
  int64_t bias_capacity = 0;
  int64_t top_width = 0;  // alternatives per row of the group in hand

  kernels::HostBuffer staging;
  std::byte* host = nullptr;  // of the step in hand
  kernels::Buffer device;
  int64_t used_bytes = 0;

  uint64_t* seeds = nullptr;
  float *temperature = nullptr, *top_p = nullptr, *min_p = nullptr;
  float *repetition = nullptr, *presence = nullptr, *frequency = nullptr;
  int32_t *top_k = nullptr, *choices = nullptr, *positions = nullptr;
  int32_t *history_offsets = nullptr, *bias_offsets = nullptr, *mask_rows = nullptr;
  std::byte* parameters_end = nullptr;
  int32_t *history_ids = nullptr, *history_counts = nullptr, *bias_ids = nullptr;
  float* bias_values = nullptr;
  int32_t* masks = nullptr;
  int64_t mask_count = 0;  // of the group in hand
  int32_t* token_ids = nullptr;
  float* logprobs = nullptr;
  float* top_values = nullptr;
  int32_t* top_ids = nullptr;
  kernels::Buffer workspace;

  int64_t mask_words() const { return (limits.vocabulary + 31) / 32; }

  // Reserves `count` elements; a first pass without `host` only adds up the size.
  template <typename T>
  void Take(T** array, int64_t count) {
    if (host != nullptr) *array = reinterpret_cast<T*>(host + used_bytes);
    used_bytes += (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  }

  void LayOut() {
    used_bytes = 0;
    const int64_t rows = limits.max_rows;
    Take(&seeds, rows);
    for (float** array : {&temperature, &top_p, &min_p, &repetition, &presence, &frequency}) {
      Take(array, rows);
    }
    for (int32_t** array : {&top_k, &choices, &positions}) Take(array, rows);
    Take(&history_offsets, rows + 1);
    Take(&bias_offsets, rows + 1);
    Take(&mask_rows, rows);
    Take(&parameters_end, 0);
    Take(&history_ids, history_capacity);
    Take(&history_counts, history_capacity);
    Take(&bias_ids, bias_capacity);
    Take(&bias_values, bias_capacity);
    Take(&masks, rows * mask_words());
    Take(&token_ids, rows);
    Take(&logprobs, kLogprobRows * limits.vocabulary);
    Take(&top_values, kLogprobRows * kMaxTopLogprobs);
    Take(&top_ids, kLogprobRows * kMaxTopLogprobs);
  }

  void UseStep(int step) {
    host = staging.data() + step * used_bytes;
    LayOut();
  }

  template <typename T>
  std::byte* OnDevice(const T* array) const {
    return device.data() + (reinterpret_cast<const std::byte*>(array) - host);
  }
  TensorView View(const float* array, int64_t count) const {
    return TensorView(OnDevice(array), DType::kF32, {count});
  }
  TensorView View(const int32_t* array, int64_t count) const {
    return TensorView(OnDevice(array), DType::kI32, {count});
  }
  template <typename T>
  absl::Status Upload(const T* array, int64_t count, kernels::Stream& stream) const {
    if (count == 0) return absl::OkStatus();
    return stream.CopyToDevice(OnDevice(array), array, count * static_cast<int64_t>(sizeof(T)));
  }
  template <typename T>
  absl::Status Download(T* array, int64_t count, kernels::Stream& stream) const {
    return stream.CopyToHost(array, OnDevice(array), count * static_cast<int64_t>(sizeof(T)));
  }

  void Stage(int64_t row, const SampleRequest& request);
  kernels::SampleArgs Args(const TensorView& logits, int64_t rows) const;
};

void Sampler::State::Stage(int64_t row, const SampleRequest& request) {
  const v1::SamplingParams& params = *request.params;
  seeds[row] = params.seed();
  temperature[row] = params.temperature();
  top_p[row] = params.top_p();
  min_p[row] = params.min_p();
  repetition[row] = params.repetition_penalty();
  presence[row] = params.presence_penalty();
  frequency[row] = params.frequency_penalty();
  top_k[row] = params.top_k();
  choices[row] = request.choice;
  positions[row] = static_cast<int32_t>(request.position);

  const int32_t history = history_offsets[row];
  std::copy(request.history_ids.begin(), request.history_ids.end(), history_ids + history);
  std::copy(request.history_counts.begin(), request.history_counts.end(), history_counts + history);
  history_offsets[row + 1] = history + static_cast<int32_t>(request.history_ids.size());

  int32_t bias = bias_offsets[row];
  for (const auto& [id, value] : params.logit_bias()) {
    bias_ids[bias] = id;
    bias_values[bias++] = value;
  }
  for (const int32_t id : request.banned) {
    bias_ids[bias] = id;
    bias_values[bias++] = -INFINITY;
  }
  bias_offsets[row + 1] = bias;

  mask_rows[row] = request.mask.empty() ? -1 : static_cast<int32_t>(mask_count++);
  if (request.mask.empty()) return;
  int32_t* const mask = masks + mask_rows[row] * mask_words();
  const auto given = std::min<int64_t>(std::ssize(request.mask), mask_words());
  std::copy_n(request.mask.begin(), given, mask);
  std::fill(mask + given, mask + mask_words(), 0);
}

kernels::SampleArgs Sampler::State::Args(const TensorView& logits, int64_t rows) const {
  kernels::SampleArgs args;
  args.token_ids = View(token_ids, rows);
  args.logits = logits;
  args.temperature = View(temperature, rows);
  args.top_p = View(top_p, rows);
  args.min_p = View(min_p, rows);
  args.top_k = View(top_k, rows);
  args.repetition_penalty = View(repetition, rows);
  args.presence_penalty = View(presence, rows);
  args.frequency_penalty = View(frequency, rows);
  args.seeds = TensorView(OnDevice(seeds), DType::kU64, {rows});
  args.choices = View(choices, rows);
  args.positions = View(positions, rows);
  args.history_offsets = View(history_offsets, rows + 1);
  args.history_ids = View(history_ids, history_offsets[rows]);
  args.history_counts = View(history_counts, history_offsets[rows]);
  args.bias_offsets = View(bias_offsets, rows + 1);
  args.bias_ids = View(bias_ids, bias_offsets[rows]);
  args.bias_values = View(bias_values, bias_offsets[rows]);
  if (mask_count > 0) {
    args.masks = TensorView(OnDevice(masks), DType::kI32, {mask_count, mask_words()});
    args.mask_rows = View(mask_rows, rows);
  }
  args.workspace = TensorView(workspace.data(), DType::kI8, {workspace.size_bytes()});
  return args;
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(const SamplerLimits& limits,
                                                         kernels::Device& device) {
  auto state = std::make_unique<State>();
  state->limits = limits;
  state->ops = &device.ops();
  // Ids are unique within a row, and a ban or bias may name each id once.
  state->history_capacity = HistoryCapacity(limits);
  state->bias_capacity = BiasCapacity(limits);
  state->LayOut();
  auto staging = device.AllocateHost(kSteps * state->used_bytes);
  if (!staging.ok()) return staging.status();
  state->staging = *std::move(staging);
  state->UseStep(0);
  auto memory = device.Allocate(state->used_bytes);
  if (!memory.ok()) return memory.status();
  state->device = *std::move(memory);
  auto workspace = device.Allocate(
      std::max<int64_t>(64, state->ops->SampleWorkspaceBytes(limits.max_rows, limits.vocabulary)));
  if (!workspace.ok()) return workspace.status();
  state->workspace = *std::move(workspace);
  return std::unique_ptr<Sampler>(new Sampler(std::move(state)));
}

Sampler::Sampler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sampler::~Sampler() = default;

int64_t Sampler::device_bytes() const {
  return state_->device.size_bytes() + state_->workspace.size_bytes();
}

// Enqueues the drawing of one token per row of `logits` and the copy of the tokens to the host.
absl::Status Sampler::DrawGroup(const TensorView& logits, std::span<const SampleRequest> group,
                                kernels::Stream& stream) {
  State& s = *state_;
  s.history_offsets[0] = s.bias_offsets[0] = 0;
  s.mask_count = 0;
  const int64_t rows = static_cast<int64_t>(group.size());
  for (int64_t row = 0; row < rows; ++row) s.Stage(row, group[row]);
  const int64_t parameter_bytes = s.parameters_end - s.host;
  const int32_t history = s.history_offsets[rows], bias = s.bias_offsets[rows];
  absl::Status status = s.Upload(s.host, parameter_bytes, stream);
  status.Update(s.Upload(s.history_ids, history, stream));
  status.Update(s.Upload(s.history_counts, history, stream));
  status.Update(s.Upload(s.bias_ids, bias, stream));
  status.Update(s.Upload(s.bias_values, bias, stream));
  status.Update(s.Upload(s.masks, s.mask_count * s.mask_words(), stream));
  if (!status.ok()) return status;
  status.Update(s.ops->Sample(s.Args(logits, rows), stream));
  if (status.ok()) status.Update(s.Download(s.token_ids, rows, stream));
  return status;
}

bool Sampler::DrawsAtOnce(const SamplerLimits& limits, std::span<const SampleRequest> sampled) {
  const auto plain = [](const SampleRequest& request) { return request.top_logprobs < 0; };
  return std::all_of(sampled.begin(), sampled.end(), plain) &&
         GroupSize(limits, sampled, limits.max_rows) == sampled.size();
}

absl::Status Sampler::Enqueue(const TensorView& logits, std::span<const SampleRequest> sampled,
                              int step, kernels::Stream& stream) {
  if (sampled.empty()) return absl::OkStatus();
  state_->UseStep(step);
  return DrawGroup(logits, sampled, stream);
}

void Sampler::Read(int step, size_t count, std::vector<SampleResult>* samples) {
  state_->UseStep(step);
  samples->clear();
  for (size_t i = 0; i < count; ++i) samples->push_back({state_->token_ids[i], {}, {}, {}});
}

TensorView Sampler::drawn() const {
  return state_->View(state_->token_ids, state_->limits.max_rows);
}

absl::Status Sampler::DrawPlain(const TensorView& logits, std::span<const SampleRequest> plain,
                                kernels::Stream& stream, std::vector<SampleResult>* samples) {
  for (size_t at = 0; at < plain.size();) {
    const size_t count = GroupSize(state_->limits, plain.subspan(at), state_->limits.max_rows);
    absl::Status status = DrawGroup(RowsOf(logits, at, count), plain.subspan(at, count), stream);
    status.Update(stream.Synchronize());
    if (!status.ok()) return status;
    for (size_t i = 0; i < count; ++i) {
      samples->push_back({state_->token_ids[i], {}, {}, {}});
    }
    at += count;
  }
  return absl::OkStatus();
}

// Enqueues log-softmax and top k of up to kLogprobRows rows and their way to the host.
absl::Status Sampler::EnqueueLogprobs(const TensorView& logits, int32_t top,
                                      kernels::Stream& stream) {
  State& s = *state_;
  const int64_t rows = logits.rows(), vocabulary = s.limits.vocabulary;
  s.top_width = std::min<int64_t>(top, vocabulary);
  const TensorView logprobs(s.OnDevice(s.logprobs), DType::kF32, {rows, vocabulary});
  absl::Status status = s.ops->LogSoftmax({logprobs, logits}, stream);
  if (status.ok() && s.top_width > 0) {
    const int64_t k = s.top_width;
    const TensorView values(s.OnDevice(s.top_values), DType::kF32, {rows, k});
    const TensorView ids(s.OnDevice(s.top_ids), DType::kI32, {rows, k});
    status.Update(s.ops->TopK({values, ids, logprobs}, stream));
    status.Update(s.Download(s.top_values, rows * k, stream));
    status.Update(s.Download(s.top_ids, rows * k, stream));
  }
  status.Update(s.Download(s.logprobs, rows * vocabulary, stream));
  return status;
}

void Sampler::FillLogprobs(int64_t row, int32_t token_id, int32_t top,
                           v1::PositionLogprobs* out) const {
  const State& s = *state_;
  const float* logprobs = s.logprobs + row * s.limits.vocabulary;
  const float chosen = logprobs[token_id];
  const auto likelier = std::count_if(logprobs, logprobs + s.limits.vocabulary,
                                      [chosen](float value) { return value > chosen; });
  out->mutable_chosen()->set_token_id(token_id);
  out->mutable_chosen()->set_logprob(chosen);
  out->mutable_chosen()->set_rank(static_cast<int32_t>(likelier) + 1);
  for (int64_t i = 0; i < std::min<int64_t>(top, s.top_width); ++i) {
    v1::TokenLogprob* entry = out->add_top();
    entry->set_token_id(s.top_ids[row * s.top_width + i]);
    entry->set_logprob(s.top_values[row * s.top_width + i]);
    entry->set_rank(static_cast<int32_t>(i) + 1);
  }
}

absl::Status Sampler::DrawWithLogprobs(const TensorView& logits,
                                       std::span<const SampleRequest> group,
                                       kernels::Stream& stream,
                                       std::vector<SampleResult>* samples) {
  int32_t top = 0;
  for (const SampleRequest& request : group) top = std::max(top, request.top_logprobs);
  // Before Sample, which overwrites the logits.
  absl::Status status = EnqueueLogprobs(logits, top, stream);
  if (status.ok()) status = DrawGroup(logits, group, stream);
  status.Update(stream.Synchronize());
  if (!status.ok()) return status;
  for (size_t row = 0; row < group.size(); ++row) {
    SampleResult& result = samples->emplace_back();
    result.token_id = state_->token_ids[row];
    if (result.token_id < 0) continue;
    FillLogprobs(row, result.token_id, group[row].top_logprobs, &result.logprobs);
    for (const int32_t id : group[row].logprob_ids) {
      v1::TokenLogprob* asked = result.logprobs.add_asked();
      asked->set_token_id(id);
      asked->set_logprob(state_->logprobs[row * state_->limits.vocabulary + id]);
    }
  }
  return absl::OkStatus();
}

absl::Status Sampler::Score(const TensorView& logits, std::span<const ScoreRequest> group,
                            kernels::Stream& stream, std::vector<v1::PositionLogprobs>* scores) {
  int32_t top = 0;
  for (const ScoreRequest& request : group) top = std::max(top, request.top_logprobs);
  absl::Status status = EnqueueLogprobs(logits, top, stream);
  status.Update(stream.Synchronize());
  if (!status.ok()) return status;
  for (size_t row = 0; row < group.size(); ++row) {
    FillLogprobs(row, group[row].token_id, group[row].top_logprobs, &scores->emplace_back());
  }
  return absl::OkStatus();
}

absl::Status Sampler::Run(const TensorView& logits, std::span<const SampleRequest> sampled,
                          std::span<const ScoreRequest> scored, kernels::Stream& stream,
                          std::vector<SampleResult>* samples,
                          std::vector<v1::PositionLogprobs>* scores) {
  samples->clear();
  scores->clear();
  size_t plain = 0;
  while (plain < sampled.size() && sampled[plain].top_logprobs < 0) ++plain;
  absl::Status status = DrawPlain(logits, sampled.first(plain), stream, samples);
  for (size_t at = plain; status.ok() && at < sampled.size();) {
    const size_t count = GroupSize(state_->limits, sampled.subspan(at), kLogprobRows);
    status =
        DrawWithLogprobs(RowsOf(logits, at, count), sampled.subspan(at, count), stream, samples);
    at += count;
  }
  for (size_t at = 0; status.ok() && at < scored.size();) {
    const size_t count = std::min<size_t>(kLogprobRows, scored.size() - at);
    status = Score(RowsOf(logits, sampled.size() + at, count), scored.subspan(at, count), stream,
                   scores);
    at += count;
  }
  return status;
}

}  // namespace tessera::worker
