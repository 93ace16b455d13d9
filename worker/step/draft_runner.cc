#include "worker/step/draft_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tessera::worker {
namespace {

std::span<const int32_t> TableOf(const StepArrays& step, int64_t sequence) {
  int64_t first = 0;
  for (int64_t i = 0; i < sequence; ++i) first += step.table_widths()[static_cast<size_t>(i)];
  return step.tables().subspan(static_cast<size_t>(first),
                               static_cast<size_t>(step.table_widths()[sequence]));
}

void Assign(std::span<const int32_t> from, std::vector<int32_t>* to) {
  to->assign(from.begin(), from.end());
}

}  // namespace

void DraftRunner::Columns::Clear() {
  for (std::vector<int32_t>* column :
       {&token_ids, &positions, &rope_lengths, &slots, &query_starts, &context_lengths, &widths,
        &tables, &logit_rows, &window_slots, &window_tables}) {
    column->clear();
  }
}

absl::StatusOr<std::unique_ptr<DraftRunner>> DraftRunner::Create(const StepLimits& limits,
                                                                 const SamplerLimits& sampler,
                                                                 int64_t block_tokens, bool samples,
                                                                 Model* model,
                                                                 kernels::Device* device) {
  StepLimits own = limits;
  own.windows_apart = false;
  own.max_logit_rows = limits.max_sequences;
  if (model->draft_model() != nullptr) own = DraftModelLimits(limits);
  std::unique_ptr<DraftRunner> runner(
      new DraftRunner(own, sampler.vocabulary, block_tokens, model));
  auto upload = StepUpload::Create(own, *device);
  if (!upload.ok()) return upload.status();
  runner->upload_ = *std::move(upload);
  if (samples) {
    SamplerLimits rows = sampler;
    rows.max_rows = own.max_logit_rows;
    rows.vocabulary = runner->draft_vocabulary_;
    auto made = Sampler::Create(rows, *device);
    if (!made.ok()) return made.status();
    runner->sampler_ = *std::move(made);
  }
  const int64_t ids = std::max(limits.max_logit_rows, own.max_logit_rows);
  auto memory = device->Allocate(ids * static_cast<int64_t>(sizeof(int32_t)));
  if (!memory.ok()) return memory.status();
  runner->ids_ = *std::move(memory);
  return runner;
}

DraftRunner::DraftRunner(const StepLimits& limits, int64_t vocabulary, int64_t block_tokens,
                         Model* model)
    : block_tokens_(block_tokens),
      model_(model),
      draft_model_(model->draft_model()),
      vocabulary_(vocabulary),
      draft_vocabulary_(draft_model_ == nullptr ? vocabulary : draft_model_->logits().shape[1]),
      arrays_(limits) {}

int64_t DraftRunner::device_bytes() const {
  return upload_->device_bytes() + ids_.size_bytes() +
         (sampler_ == nullptr ? 0 : sampler_->device_bytes());
}

// The ids of the rank that draws, which is the group's first.
absl::Status DraftRunner::AgreeOn(kernels::Group* group, kernels::Stream& stream,
                                  std::vector<int32_t>* ids) {
  if (group == nullptr || ids->empty()) return absl::OkStatus();
  const kernels::TensorView view(ids_.data(), kernels::DType::kI32, {std::ssize(*ids)});
  const auto bytes = static_cast<int64_t>(ids->size() * sizeof(int32_t));
  absl::Status status = stream.CopyToDevice(view.data, ids->data(), bytes);
  if (status.ok()) status = group->Broadcast(view, 0, stream);
  if (status.ok()) status = stream.CopyToHost(ids->data(), view.data, bytes);
  status.Update(stream.Synchronize());
  return status;
}

// Fills next_ids_ and lists_.
void DraftRunner::FindLists(const StepArrays& step, std::span<const int32_t> drawn) {
  constexpr int32_t kUnknown = -1;
  const auto rows = static_cast<size_t>(step.rows());
  std::vector<int32_t> sample_of(rows, -1);
  for (size_t i = 0; i < drawn.size(); ++i) {
    sample_of[static_cast<size_t>(step.logit_rows()[i])] = static_cast<int32_t>(i);
  }
  next_ids_.assign(rows, kUnknown);
  lists_.clear();
  for (int64_t s = 0; s < step.sequences(); ++s) {
    const int32_t first = step.query_starts()[s], end = step.query_starts()[s + 1];
    if (first == end) continue;
    for (int32_t row = first; row + 1 < end; ++row) next_ids_[row] = step.token_ids()[row + 1];
    int32_t row = end - 1 - step.draft_rows()[s];
    next_ids_[row] = step.next_ids()[s];
    if (sample_of[row] < 0) continue;
    const auto drawn_behind = [&](int32_t at) { return drawn[sample_of[at]]; };
    while (row + 1 < end && drawn_behind(row) == step.token_ids()[row + 1] &&
           sample_of[row + 1] >= 0) {
      next_ids_[row] = drawn_behind(row);
      ++row;
    }
    next_ids_[row] = drawn_behind(row);
    if (next_ids_[row] < 0) continue;
    List& list = lists_.emplace_back();
    list.sequence = s;
    list.sample = static_cast<size_t>(sample_of[row]);
    list.row = row;
    list.position = step.positions()[row];
  }
  // Rows of drafts that do not stand have any token behind them.
  for (int32_t& id : next_ids_) id = std::max(0, id);
}

// All rows of the step, each with the token behind it.
void DraftRunner::FillHeadRows(const StepArrays& step) {
  columns_.Clear();
  Assign(next_ids_, &columns_.token_ids);
  Assign(step.positions(), &columns_.positions);
  Assign(step.rope_lengths(), &columns_.rope_lengths);
  Assign(step.slots(), &columns_.slots);
  Assign(step.query_starts(), &columns_.query_starts);
  Assign(step.context_lengths(), &columns_.context_lengths);
  Assign(step.table_widths(), &columns_.widths);
  Assign(step.tables(), &columns_.tables);
  for (const List& list : lists_) columns_.logit_rows.push_back(list.row);
}

int32_t DraftRunner::SlotOf(std::span<const int32_t> table, int32_t position) const {
  const auto block_tokens = static_cast<int32_t>(block_tokens_);
  return table[position / block_tokens] * block_tokens + position % block_tokens;
}

bool DraftRunner::IsBeyond(std::span<const int32_t> table, int32_t position) const {
  return position / block_tokens_ >= std::ssize(table) ||
         (draft_model_ != nullptr && position >= draft_model_->max_positions());
}

void DraftRunner::AddModelRow(int32_t token, int32_t position, int32_t rope_length, int32_t slot) {
  if (position >= draft_model_->max_positions()) return;
  const bool known = token >= 0 && token < draft_vocabulary_;
  columns_.token_ids.push_back(known ? token : 0);
  columns_.positions.push_back(position);
  columns_.rope_lengths.push_back(rope_length);
  columns_.slots.push_back(slot);
}

// The step's tokens that stand, and behind each list's the drawn one. Lists that have no room for
// that one go.
void DraftRunner::FillModelRows(const StepArrays& step) {
  columns_.Clear();
  columns_.query_starts.push_back(0);
  size_t next = 0;  // of lists_
  for (int64_t s = 0; s < step.sequences(); ++s) {
    const bool listed = next < lists_.size() && lists_[next].sequence == s;
    List* const list = listed ? &lists_[next++] : nullptr;
    const int32_t first = step.query_starts()[s];
    const int32_t end = listed ? list->row + 1 : step.query_starts()[s + 1] - step.draft_rows()[s];
    const size_t rows_before = columns_.token_ids.size();
    for (int32_t row = first; row < end; ++row) {
      AddModelRow(step.token_ids()[row], step.positions()[row], step.rope_lengths()[row],
                  step.slots()[row]);
    }
    const std::span<const int32_t> table = TableOf(step, s);
    if (listed) {
      list->position = step.positions()[list->row] + 1;
      list->ends = IsBeyond(table, list->position);
    }
    if (listed && !list->ends) {
      AddModelRow(next_ids_[list->row], list->position,
                  std::max(step.rope_lengths()[list->row], list->position + 1),
                  SlotOf(table, list->position));
      columns_.logit_rows.push_back(static_cast<int32_t>(columns_.token_ids.size()) - 1);
    }
    const bool any = columns_.token_ids.size() > rows_before;
    columns_.query_starts.push_back(static_cast<int32_t>(columns_.token_ids.size()));
    columns_.context_lengths.push_back(any ? columns_.positions.back() + 1 : 0);
    columns_.widths.push_back(static_cast<int32_t>(table.size()));
    columns_.tables.insert(columns_.tables.end(), table.begin(), table.end());
  }
  std::erase_if(lists_, [](const List& list) { return list.ends; });
}

// One row a list, `behind` positions behind its row of the step: of what was proposed last.
void DraftRunner::FillNext(const StepArrays& step, int32_t behind) {
  columns_.Clear();
  columns_.query_starts.push_back(0);
  for (size_t i = 0; i < lists_.size(); ++i) {
    List& list = lists_[i];
    const auto row = static_cast<int32_t>(i);
    const int32_t position = list.position + behind;
    const std::span<const int32_t> table = TableOf(step, list.sequence);
    list.ends = list.ends || proposed_[i] < 0 || IsBeyond(table, position);
    const bool known = proposed_[i] >= 0 && proposed_[i] < draft_vocabulary_;
    columns_.token_ids.push_back(known ? proposed_[i] : 0);
    columns_.positions.push_back(position);
    columns_.rope_lengths.push_back(
        std::max(step.rope_lengths()[static_cast<size_t>(list.row)], position + 1));
    // A list that has ended leaves nothing, and it does not matter what its row reads.
    columns_.slots.push_back(list.ends ? -1 : SlotOf(table, position));
    columns_.query_starts.push_back(row + 1);
    columns_.context_lengths.push_back(list.ends ? list.position + 1 : position + 1);
    columns_.widths.push_back(static_cast<int32_t>(table.size()));
    columns_.tables.insert(columns_.tables.end(), table.begin(), table.end());
    columns_.logit_rows.push_back(row);
  }
}

// Proposes the tokens that stand `behind` further than the first proposed ones.
absl::Status DraftRunner::Draw(const StepWork& work, int32_t behind,
                               const kernels::TensorView& logits, kernels::Stream& stream) {
  const bool same_ids = draft_vocabulary_ == vocabulary_;
  std::vector<SampleRequest> requests(lists_.size());
  params_.resize(same_ids ? 0 : lists_.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const SampleRequest& drawn = work.samples[lists_[i].sample];
    SampleRequest& request = requests[i];
    request.params = drawn.params;
    request.choice = drawn.choice;
    request.position = drawn.position + 1 + behind;
    if (same_ids) {
      request.history_ids = drawn.history_ids;
      request.history_counts = drawn.history_counts;
      request.banned = drawn.banned;
      continue;
    }
    params_[i] = *drawn.params;
    params_[i].clear_logit_bias();  // of ids that may not be there
    request.params = &params_[i];
  }
  std::vector<SampleResult> results;
  std::vector<v1::PositionLogprobs> scores;
  absl::Status status =
      sampler_->Run(logits.Rows(std::ssize(requests)), requests, {}, stream, &results, &scores);
  if (!status.ok()) return status;
  for (size_t i = 0; i < proposed_.size(); ++i) {
    const int32_t id = results[i].token_id;
    proposed_[i] = id < vocabulary_ ? id : -1;
  }
  return status;
}

absl::Status DraftRunner::Pass(const StepWork& work, int32_t behind, kernels::Group* group,
                               KvWriteListener* listener, kernels::Stream& stream) {
  if (columns_.token_ids.empty()) return absl::OkStatus();
  const KvBlocks any{std::numeric_limits<int32_t>::max()};
  absl::Status status = arrays_.Assign({.token_ids = columns_.token_ids,
                                        .positions = columns_.positions,
                                        .rope_lengths = columns_.rope_lengths,
                                        .slots = columns_.slots,
                                        .query_starts = columns_.query_starts,
                                        .context_lengths = columns_.context_lengths,
                                        .table_widths = columns_.widths,
                                        .tables = columns_.tables,
                                        .logit_rows = columns_.logit_rows},
                                       any, block_tokens_);
  if (!status.ok()) return status;
  auto inputs = upload_->Copy(arrays_, /*padded=*/false, stream);
  if (!inputs.ok()) return inputs.status();
  inputs->kv_listener = draft_model_ == nullptr ? listener : nullptr;
  status = draft_model_ != nullptr ? draft_model_->Forward(*inputs, stream)
                                   : model_->Draft(*inputs, /*goes_on=*/behind > 0, stream);
  proposed_.assign(columns_.logit_rows.size(), -1);
  if (!status.ok() || proposed_.empty()) return status;
  if (sampler_ != nullptr) {
    status =
        Draw(work, behind,
             draft_model_ != nullptr ? draft_model_->logits() : model_->draft_logits(), stream);
    if (!status.ok()) return status;
  }
  return AgreeOn(group, stream, &proposed_);
}

absl::Status DraftRunner::Run(const StepWork& work, kernels::Group* group,
                              KvWriteListener* listener, kernels::Stream& stream,
                              StepOutcome* outcome) {
  if (work.arrays->rows() == 0) return absl::OkStatus();
  // What is sent to other replicas is complete in any case.
  if (work.draft_tokens < 0 && work.pushes.empty()) return absl::OkStatus();
  if (draft_model_ != nullptr) group = nullptr;  // it is whole
  std::vector<int32_t> drawn(work.samples.size(), -1);
  if (sampler_ != nullptr) {
    for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = outcome->samples[i].token_id;
  }
  absl::Status status = AgreeOn(group, stream, &drawn);
  if (!status.ok()) return status;
  FindLists(*work.arrays, drawn);
  if (draft_model_ != nullptr) {
    FillModelRows(*work.arrays);
  } else {
    FillHeadRows(*work.arrays);
  }
  if (work.draft_tokens <= 0) {
    lists_.clear();
    columns_.logit_rows.clear();
  }
  status = Pass(work, 0, group, listener, stream);
  for (int32_t behind = 1; status.ok() && !lists_.empty(); ++behind) {
    for (size_t i = 0; i < lists_.size(); ++i) {
      if (!lists_[i].ends && proposed_[i] >= 0) lists_[i].drafts.push_back(proposed_[i]);
    }
    if (behind >= work.draft_tokens) break;
    FillNext(*work.arrays, behind);
    const bool all_end =
        std::all_of(lists_.begin(), lists_.end(), [](const List& list) { return list.ends; });
    if (all_end) break;
    status = Pass(work, behind, group, nullptr, stream);
  }
  if (!status.ok() || sampler_ == nullptr) return status;
  for (List& list : lists_) outcome->samples[list.sample].drafts = std::move(list.drafts);
  return status;
}

}  // namespace tessera::worker
