#include "worker/step/step_wire.h"

#include <span>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using Field = google::protobuf::RepeatedField<int32_t>;

void Write(std::span<const int32_t> values, Field* field) {
  field->Clear();
  field->Add(values.begin(), values.end());
}

std::span<const int32_t> Read(const Field& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

using States = google::protobuf::RepeatedPtrField<v1::StateCopy>;

// What may be drawn.
void WriteAllowed(const SampleRequest& request, v1::SampleRow* row) {
  Write(request.banned, row->mutable_banned_ids());
  Write(request.mask, row->mutable_mask());
}

void WriteStates(std::span<const StateCopy> copies, States* field) {
  field->Clear();
  for (const StateCopy& copy : copies) {
    v1::StateCopy* sent = field->Add();
    sent->set_sequence(copy.sequence);
    sent->set_snapshot(copy.snapshot);
    sent->set_name(copy.name);
    sent->set_position(copy.position);
  }
}

void ReadStates(const States& field, std::vector<StateCopy>* copies) {
  copies->clear();
  for (const v1::StateCopy& sent : field) {
    copies->push_back({sent.sequence(), sent.snapshot(), sent.name(), sent.position()});
  }
}

}  // namespace

void WriteDescriptor(const StepWork& work, v1::StepDescriptor* descriptor) {
  const StepArrays& arrays = *work.arrays;
  Write(arrays.token_ids(), descriptor->mutable_token_ids());
  Write(arrays.positions(), descriptor->mutable_positions());
  Write(arrays.rope_lengths(), descriptor->mutable_rope_lengths());
  Write(arrays.slots(), descriptor->mutable_slots());
  Write(arrays.query_starts(), descriptor->mutable_query_starts());
  Write(arrays.context_lengths(), descriptor->mutable_context_lengths());
  Write(arrays.table_widths(), descriptor->mutable_block_table_widths());
  Write(arrays.tables(), descriptor->mutable_block_tables());
  Write(arrays.logit_rows(), descriptor->mutable_logit_rows());
  descriptor->clear_window_slots();
  descriptor->clear_window_block_tables();
  if (arrays.windows_apart()) {
    Write(arrays.window_slots(), descriptor->mutable_window_slots());
    Write(arrays.window_tables(), descriptor->mutable_window_block_tables());
  }
  descriptor->clear_seats();
  descriptor->clear_seat_owners();
  descriptor->clear_draft_rows();
  if (arrays.has_drafts()) Write(arrays.draft_rows(), descriptor->mutable_draft_rows());
  Write(arrays.next_ids(), descriptor->mutable_next_ids());
  descriptor->set_draft_tokens(work.draft_tokens);
  if (arrays.has_seats()) {
    Write(arrays.seats(), descriptor->mutable_seats());
    descriptor->mutable_seat_owners()->Add(arrays.seat_owners().begin(),
                                           arrays.seat_owners().end());
  }
  WriteStates(work.restores, descriptor->mutable_restores());
  WriteStates(work.saves, descriptor->mutable_saves());
  descriptor->clear_samples();
  for (const SampleRequest& request : work.samples) {
    v1::SampleRow* row = descriptor->add_samples();
    *row->mutable_sampling() = *request.params;
    row->set_choice(request.choice);
    row->set_position(request.position);
    Write(request.history_ids, row->mutable_history_ids());
    Write(request.history_counts, row->mutable_history_counts());
    if (work.make_masks == nullptr || request.mask.empty()) WriteAllowed(request, row);
    row->set_top_logprobs(request.top_logprobs);
    row->set_final_row(request.final_row);
    Write(request.logprob_ids, row->mutable_logprob_ids());
  }
  descriptor->clear_scores();
  for (const ScoreRequest& request : work.scores) {
    v1::ScoreRow* row = descriptor->add_scores();
    row->set_token_id(request.token_id);
    row->set_top_logprobs(request.top_logprobs);
    row->set_sum(request.sum);
  }
  descriptor->clear_pushes();
  for (const KvPush& push : work.pushes) {
    v1::KvPush* sent = descriptor->add_pushes();
    sent->set_submission_id(push.submission_id);
    sent->set_attempt(push.attempt);
    sent->set_sequence(push.sequence);
    sent->set_first_token(static_cast<int32_t>(push.first));
    sent->set_end_token(static_cast<int32_t>(push.end));
    sent->set_prompt_tokens(static_cast<int32_t>(push.prompt_tokens));
    *sent->mutable_target() = *push.target;
  }
}

void WriteMasks(const StepWork& work, v1::StepDescriptor* masks) {
  masks->clear_samples();
  for (const SampleRequest& request : work.samples) {
    v1::SampleRow* row = masks->add_samples();
    if (!request.mask.empty()) WriteAllowed(request, row);
  }
}

absl::Status ReceivedStep::TakeMasks(const std::string& message) {
  if (!masks_.ParseFromString(message))
    return absl::InvalidArgumentError("the leader sent masks of a step that cannot be read");
  if (masks_.step() != descriptor_.step() || masks_.samples_size() != descriptor_.samples_size()) {
    return absl::InvalidArgumentError(StrCat(
        "masks of step ", masks_.step(), " for ", masks_.samples_size(),
        " samples; the step in hand is ", descriptor_.step(), ", of ", descriptor_.samples_size()));
  }
  for (int i = 0; i < masks_.samples_size(); ++i) {
    const v1::SampleRow& row = masks_.samples(i);
    if (row.mask().empty()) continue;
    samples_[i].mask = Read(row.mask());
    samples_[i].banned = Read(row.banned_ids());
  }
  return absl::OkStatus();
}

absl::Status ReceivedStep::Check() {
  const v1::StepDescriptor& d = descriptor_;
  absl::Status status = arrays_.Assign(
      {.token_ids = Read(d.token_ids()),
       .positions = Read(d.positions()),
       .rope_lengths = Read(d.rope_lengths()),
       .slots = Read(d.slots()),
       .query_starts = Read(d.query_starts()),
       .context_lengths = Read(d.context_lengths()),
       .table_widths = Read(d.block_table_widths()),
       .tables = Read(d.block_tables()),
       .logit_rows = Read(d.logit_rows()),
       .seats = Read(d.seats()),
       .seat_owners = {d.seat_owners().data(), static_cast<size_t>(d.seat_owners_size())},
       .draft_rows = Read(d.draft_rows()),
       .next_ids = Read(d.next_ids()),
       .window_slots = Read(d.window_slots()),
       .window_tables = Read(d.window_block_tables())},
      kv_blocks_, block_tokens_);
  if (!status.ok()) return status;
  if (d.samples_size() + d.scores_size() != d.logit_rows_size()) {
    return absl::InvalidArgumentError(StrCat("step descriptor: ", d.samples_size(), " samples and ",
                                             d.scores_size(), " scores for ", d.logit_rows_size(),
                                             " logit_rows"));
  }
  samples_.clear();
  for (const v1::SampleRow& row : d.samples()) {
    if (row.history_ids_size() != row.history_counts_size()) {
      return absl::InvalidArgumentError(StrCat("step descriptor: ", row.history_ids_size(),
                                               " history_ids with ", row.history_counts_size(),
                                               " history_counts"));
    }
    SampleRequest& request = samples_.emplace_back();
    request.params = &row.sampling();
    request.choice = row.choice();
    request.position = row.position();
    request.history_ids = Read(row.history_ids());
    request.history_counts = Read(row.history_counts());
    request.banned = Read(row.banned_ids());
    request.mask = Read(row.mask());
    request.top_logprobs = row.top_logprobs();
    request.final_row = row.final_row();
    request.logprob_ids = Read(row.logprob_ids());
  }
  scores_.clear();
  for (const v1::ScoreRow& row : d.scores()) {
    if (row.sum() < 0 || row.sum() > d.scores_size()) {
      return absl::InvalidArgumentError(
          StrCat("step descriptor: row sum ", row.sum(), " of ", d.scores_size(), " scores"));
    }
    scores_.push_back({row.token_id(), row.top_logprobs(), row.sum()});
  }
  ReadStates(d.restores(), &restores_);
  ReadStates(d.saves(), &saves_);
  return CheckPushes();
}

absl::Status ReceivedStep::CheckPushes() {
  pushes_.clear();
  for (const v1::KvPush& push : descriptor_.pushes()) {
    const bool is_there = push.sequence() >= 0 && push.sequence() < arrays_.sequences();
    const int64_t tokens = is_there ? arrays_.table_widths()[push.sequence()] * block_tokens_ : 0;
    if (push.first_token() < push.target().first_token() || push.target().first_token() < 0 ||
        push.first_token() >= push.end_token() || push.end_token() > push.prompt_tokens() ||
        push.end_token() > tokens) {
      return absl::InvalidArgumentError(
          StrCat("step descriptor: push of tokens ", push.first_token(), " to ", push.end_token(),
                 " of ", push.prompt_tokens(), " of sequence ", push.sequence(), ", from token ",
                 push.target().first_token(), " on; the step has ", arrays_.sequences(),
                 " sequences, and blocks for ", tokens, " tokens of that one"));
    }
    pushes_.push_back({push.submission_id(), push.attempt(), push.sequence(), push.first_token(),
                       push.end_token(), push.prompt_tokens(), &push.target()});
    for (const StateCopy& save : saves_) {
      const bool is_its = save.of_exchange() && save.sequence == push.sequence();
      if (is_its && push.end_token() == push.prompt_tokens())
        pushes_.back().exchange = save.exchange();
    }
  }
  return absl::OkStatus();
}

void WriteResult(uint64_t step, StepOutcome outcome, v1::StepResult* result) {
  result->Clear();
  result->set_step(step);
  for (SampleResult& sample : outcome.samples) {
    v1::SampledToken* token = result->add_samples();
    token->set_token_id(sample.token_id);
    if (sample.logprobs.has_chosen()) *token->mutable_logprobs() = std::move(sample.logprobs);
    token->mutable_final_row()->Add(sample.final_row.begin(), sample.final_row.end());
    token->mutable_drafts()->Add(sample.drafts.begin(), sample.drafts.end());
  }
  for (v1::PositionLogprobs& score : outcome.scores) *result->add_scores() = std::move(score);
  for (const std::vector<float>& sum : outcome.row_sums)
    result->add_row_sums()->mutable_values()->Add(sum.begin(), sum.end());
}

absl::Status ReadResult(v1::StepResult result, size_t samples, size_t scores,
                        StepOutcome* outcome) {
  if (result.error_code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(result.error_code()), result.error());
  }
  if (static_cast<size_t>(result.samples_size()) != samples ||
      static_cast<size_t>(result.scores_size()) != scores) {
    return absl::InvalidArgumentError(StrCat("step result: ", result.samples_size(),
                                             " samples and ", result.scores_size(),
                                             " scores; wanted are ", samples, " and ", scores));
  }
  outcome->samples.clear();
  for (v1::SampledToken& token : *result.mutable_samples()) {
    outcome->samples.push_back({token.token_id(),
                                std::move(*token.mutable_logprobs()),
                                {token.final_row().begin(), token.final_row().end()},
                                {token.drafts().begin(), token.drafts().end()}});
  }
  outcome->scores.clear();
  for (v1::PositionLogprobs& score : *result.mutable_scores()) {
    outcome->scores.push_back(std::move(score));
  }
  outcome->row_sums.clear();
  for (const v1::RowSum& sum : result.row_sums())
    outcome->row_sums.emplace_back(sum.values().begin(), sum.values().end());
  return absl::OkStatus();
}

}  // namespace tessera::worker
