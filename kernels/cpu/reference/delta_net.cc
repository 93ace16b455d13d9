// What layers with a state of each sequence compute: the convolution, and the gated delta rule.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/reference/reference_kernels.h"

namespace tessera::kernels::reference {
namespace {

// Calls fn(seat, first row, end row, end of the rows that leave something, starts from zeros) for
// the sequences that have rows and a seat.
template <typename Fn>
void ForSeats(const SeatArgs& args, const Fn& fn) {
  const int32_t* starts = args.query_starts.As<int32_t>();
  for (int64_t s = 0; s < args.seats.rows(); ++s) {
    const int64_t seat = args.seats.As<int32_t>()[s], rows = starts[s + 1] - starts[s];
    if (seat < 0 || rows == 0) continue;
    const int64_t drafts = args.draft_rows.empty() ? 0 : args.draft_rows.As<int32_t>()[s];
    fn(seat, starts[s], starts[s + 1], starts[s + 1] - drafts,
       args.context_lengths.As<int32_t>()[s] == rows);
  }
}

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// 1 over the length of a head of q or k.
double InverseLength(const float* head, int64_t width) {
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(head[i]) * head[i];
  return 1.0 / std::sqrt(squares + 1e-6);
}

// One row of one value head; `out` is v, and becomes what it reads from the state.
void Step(const GatedDeltaArgs& args, int64_t row, int64_t head, float* state) {
  const int64_t value_heads = args.values.shape[1], value_dim = args.values.shape[2];
  const int64_t key_dim = args.keys.shape[2];
  const int64_t key_head = head / (value_heads / args.keys.shape[1]);
  const float* q = args.queries.Row<const float>(row) + key_head * key_dim;
  const float* k = args.keys.Row<const float>(row) + key_head * key_dim;
  const float* gates = args.gates.Row<const float>(row);
  float* out = args.values.Row<float>(row) + head * value_dim;
  const double q_scale = InverseLength(q, key_dim) / std::sqrt(static_cast<double>(key_dim));
  const double k_scale = InverseLength(k, key_dim);
  const double beta = Sigmoid(gates[head]);
  const double rate = std::exp(static_cast<double>(args.decay_log.As<float>()[head]));
  const double step =
      static_cast<double>(gates[value_heads + head]) + args.decay_bias.As<float>()[head];
  const double decay = std::exp(-rate * Softplus(step));
  for (int64_t j = 0; j < value_dim; ++j) {
    double known = 0, read = 0;
    for (int64_t i = 0; i < key_dim; ++i)
      known += state[i * value_dim + j] * decay * k[i] * k_scale;
    const double change = beta * (out[j] - known);
    for (int64_t i = 0; i < key_dim; ++i) {
      const double kept = state[i * value_dim + j] * decay + k[i] * k_scale * change;
      state[i * value_dim + j] = static_cast<float>(kept);
      read += kept * q[i] * q_scale;
    }
    out[j] = static_cast<float>(read);
  }
}

}  // namespace

void CausalConv(const CausalConvArgs& args, ThreadPool&) {
  const int64_t channels = args.rows.shape[1], taps = args.weights.shape[1];
  ForSeats(args.at, [&](int64_t seat, int64_t first, int64_t end, int64_t kept, bool from_zeros) {
    float* state = args.states.Row<float>(seat);
    if (from_zeros) std::fill(state, state + (taps - 1) * channels, 0.0f);
    for (int64_t c = 0; c < channels; ++c) {
      const float* weights = args.weights.Row<const float>(c);
      std::vector<float> inputs(static_cast<size_t>(taps));
      for (int64_t t = 0; t + 1 < taps; ++t) inputs[t + 1] = state[t * channels + c];
      for (int64_t row = first; row < end; ++row) {
        float& place = args.rows.Row<float>(row)[c];
        std::rotate(inputs.begin(), inputs.begin() + 1, inputs.end());
        inputs.back() = place;
        double sum = 0;
        for (int64_t t = 0; t < taps; ++t) sum += static_cast<double>(inputs[t]) * weights[t];
        place = static_cast<float>(sum * Sigmoid(sum));
        if (row + 1 != kept) continue;
        for (int64_t t = 0; t + 1 < taps; ++t) state[t * channels + c] = inputs[t + 1];
      }
    }
  });
}

void GatedDelta(const GatedDeltaArgs& args, ThreadPool&) {
  const int64_t value_heads = args.values.shape[1];
  const int64_t elements = args.states.shape[2] * args.states.shape[3];
  ForSeats(args.at, [&](int64_t seat, int64_t first, int64_t end, int64_t kept, bool from_zeros) {
    for (int64_t head = 0; head < value_heads; ++head) {
      float* state = args.states.Row<float>(seat) + head * elements;
      if (from_zeros) std::fill(state, state + elements, 0.0f);
      for (int64_t row = first; row < kept; ++row) Step(args, row, head, state);
      if (kept == end) continue;
      std::vector<float> tried(state, state + elements);
      for (int64_t row = kept; row < end; ++row) Step(args, row, head, tried.data());
    }
  });
}

}  // namespace tessera::kernels::reference
