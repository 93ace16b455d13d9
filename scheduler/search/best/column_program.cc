#include "scheduler/search/best/column_program.h"

#include <algorithm>

namespace tessera::scheduler {

ColumnProgram::ColumnProgram(const ColumnTerms& terms)
    : whole_(terms.whole), cheapest_(terms.required.has_value()) {
  for (const double devices : terms.available)
    device_rows_.push_back(program_.AddRow(-kUnbounded, devices));
  for (size_t place = 0; place < terms.carried.size(); ++place) {
    prefill_rows_.push_back(program_.AddRow(-kUnbounded, 0));
    decode_rows_.push_back(program_.AddRow(-kUnbounded, 0));
  }
  budget_row_ = program_.AddRow(-kUnbounded, terms.budget_usd_per_hour);
  rate_row_ = program_.AddRow(terms.required.value_or(-kUnbounded), kUnbounded);
  for (size_t from = 0; from < terms.carried.size(); ++from) {
    for (size_t to = 0; to < terms.carried.size(); ++to) {
      const double most = terms.carried[from][to];
      if (most <= 0) continue;
      const int sent = program_.AddVariable(cheapest_ ? 0 : 1, 0, most, false);
      for (const int row : {prefill_rows_[from], decode_rows_[to], rate_row_})
        program_.AddTerm(row, sent, 1);
    }
  }
}

void ColumnProgram::Add(const Column& column, double most) {
  const bool both = column.role == Role::kBoth;
  const double value = both ? column.rate : 0;
  const int copies =
      program_.AddVariable(cheapest_ ? -column.usd_per_hour : value, 0, most, whole_);
  copies_.push_back(copies);
  for (size_t kind = 0; kind < device_rows_.size(); ++kind) {
    if (column.devices[kind] > 0)
      program_.AddTerm(device_rows_[kind], copies, column.devices[kind]);
  }
  program_.AddTerm(budget_row_, copies, column.usd_per_hour);
  if (both) {
    program_.AddTerm(rate_row_, copies, column.rate);
    return;
  }
  const std::vector<int>& rows = column.role == Role::kPrefill ? prefill_rows_ : decode_rows_;
  if (column.parts.empty()) program_.AddTerm(rows.front(), copies, -column.rate);
  for (const auto& [place, part] : column.parts)
    program_.AddTerm(rows[place], copies, -part * column.rate);
}

absl::StatusOr<ColumnProgram::Answer> ColumnProgram::Solve(
    double gap, int max_nodes, const std::function<bool()>& stop) const {
  const absl::StatusOr<LinearProgram::Solution> solution =
      program_.Solve(!whole_, gap, max_nodes, stop);
  if (!solution.ok()) return solution.status();
  Answer answer;
  answer.objective = solution->objective;
  for (const int copies : copies_)
    answer.copies.push_back(solution->values[static_cast<size_t>(copies)]);
  const auto price = [&](int row) {
    return std::max(0.0, solution->duals[static_cast<size_t>(row)]);
  };
  for (const int row : device_rows_) answer.device_prices.push_back(price(row));
  answer.budget_price = price(budget_row_);
  for (const int row : prefill_rows_) answer.prefill_prices.push_back(price(row));
  for (const int row : decode_rows_) answer.decode_prices.push_back(price(row));
  return answer;
}

}  // namespace tessera::scheduler
