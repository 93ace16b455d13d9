// CausalConv and GatedDelta against the reference, and all of them against their own promises: a
// sequence is computed the same however it is cut, whatever its seat held, and whoever else is in
// the call.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/path.h"

namespace tessera::kernels::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Rows [first, first + rows) of a sequence, whose numbers follow from `seed`.
struct Piece {
  int64_t first = 0, rows = 0;
  int32_t seat = 0;
  uint64_t seed = 1;
  int32_t drafts = 0;  // of these rows
};

struct Shape {
  int64_t key_heads = 2, value_heads = 4, key_dim = 16, value_dim = 16, taps = 4, seats = 4;
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  int64_t channels() const { return values() + 2 * keys(); }
  int64_t columns() const { return channels() + 2 * value_heads; }
};

struct States {
  std::vector<float> conv, delta;
};
States PoisonedStates(const Shape& shape) {
  return {std::vector<float>(shape.seats * (shape.taps - 1) * shape.channels(), kNan),
          std::vector<float>(shape.seats * shape.values() * shape.key_dim, kNan)};
}

std::vector<float> RowsOf(const Shape& shape, const Piece& piece) {
  std::vector<float> rows;
  for (int64_t r = 0; r < piece.rows; ++r) {
    const auto seed = piece.seed * 1000 + static_cast<uint64_t>(piece.first + r);
    const std::vector<float> row = RandomFloats(shape.columns(), seed);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

TensorView Part(const TensorView& rows, int64_t first, std::initializer_list<int64_t> shape) {
  TensorView view(rows.data + first * static_cast<int64_t>(sizeof(float)), DType::kF32, shape);
  view.row_stride = rows.row_stride;
  return view;
}

// Both ops as a model calls them: values, queries and keys side by side, then the gates. Outputs
// of all pieces, row by row; `states` becomes what they leave.
std::vector<float> Run(Path& path, const Shape& shape, const std::vector<Piece>& pieces,
                       States* states) {
  std::vector<float> values;
  std::vector<int32_t> starts = {0}, contexts, seats, drafts;
  for (const Piece& piece : pieces) {
    const std::vector<float> rows = RowsOf(shape, piece);
    values.insert(values.end(), rows.begin(), rows.end());
    starts.push_back(starts.back() + static_cast<int32_t>(piece.rows));
    contexts.push_back(static_cast<int32_t>(piece.first + piece.rows));
    seats.push_back(piece.seat);
    drafts.push_back(piece.drafts);
  }
  const int64_t tokens = starts.back(), sequences = static_cast<int64_t>(pieces.size());
  const Tensor rows(path, DType::kF32, {tokens, shape.columns()}, values, 5);
  const Tensor weights = Random(path, DType::kF32, {shape.channels(), shape.taps}, 7);
  const Tensor decay_log = Random(path, DType::kF32, {shape.value_heads}, 8);
  const Tensor decay_bias = Random(path, DType::kF32, {shape.value_heads}, 9);
  const Tensor conv(path, DType::kF32, {shape.seats, shape.taps - 1, shape.channels()},
                    states->conv);
  const Tensor delta(path, DType::kF32,
                     {shape.seats, shape.value_heads, shape.key_dim, shape.value_dim},
                     states->delta);
  const Tensor query_starts(path, {sequences + 1}, starts);
  const Tensor context_lengths(path, {sequences}, contexts), of_seats(path, {sequences}, seats);
  const Tensor draft_rows(path, {sequences}, drafts);
  const bool has_drafts =
      std::any_of(drafts.begin(), drafts.end(), [](int32_t d) { return d > 0; });
  const SeatArgs at = {query_starts, context_lengths, of_seats,
                       has_drafts ? draft_rows : TensorView()};
  const auto heads = [&](int64_t first, int64_t count, int64_t width) {
    return Part(rows, first, {tokens, count, width});
  };
  REQUIRE(path.ops()
              .CausalConv({.rows = Part(rows, 0, {tokens, shape.channels()}),
                           .weights = weights,
                           .states = conv,
                           .at = at},
                          path.stream())
              .ok());
  const TensorView out = heads(0, shape.value_heads, shape.value_dim);
  REQUIRE(
      path.ops()
          .GatedDelta({.values = out,
                       .queries = heads(shape.values(), shape.key_heads, shape.key_dim),
                       .keys = heads(shape.values() + shape.keys(), shape.key_heads, shape.key_dim),
                       .gates = Part(rows, shape.channels(), {tokens, 2 * shape.value_heads}),
                       .decay_log = decay_log,
                       .decay_bias = decay_bias,
                       .states = delta,
                       .at = at},
                      path.stream())
          .ok());
  path.Synchronize();
  states->conv = conv.Read();
  states->delta = delta.Read();
  CHECK(rows.PaddingIntact());
  const std::vector<float> all = rows.Read();
  std::vector<float> outputs;
  for (int64_t row = 0; row < tokens; ++row) {
    const auto begin = all.begin() + row * shape.columns();
    outputs.insert(outputs.end(), begin, begin + shape.values());
  }
  return outputs;
}

std::vector<float> OfSeat(const std::vector<float>& states, const Shape& shape, int64_t seat) {
  const int64_t size = static_cast<int64_t>(states.size()) / shape.seats;
  return {states.begin() + seat * size, states.begin() + (seat + 1) * size};
}

bool AllNan(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

std::vector<Path*> AllPaths() {
  std::vector<Path*> paths = PathsWith("GatedDelta");
  paths.push_back(&Reference());
  return paths;
}

TEST_CASE("the convolution and the delta rule equal the reference") {
  const Shape shape =
      GENERATE(Shape{}, Shape{.key_heads = 1, .value_heads = 1, .key_dim = 5, .value_dim = 3},
               Shape{.key_heads = 2, .value_heads = 6, .key_dim = 128, .value_dim = 128},
               Shape{.key_heads = 3, .value_heads = 3, .key_dim = 24, .value_dim = 40, .taps = 2},
               Shape{.value_dim = 72, .taps = 8});
  const std::vector<Piece> pieces = GENERATE(
      std::vector<Piece>{{0, 1, 2}}, std::vector<Piece>{{0, 70, 0}, {0, 3, 3, 2}, {0, 0, 1, 3}});
  CAPTURE(shape.key_heads, shape.key_dim, shape.value_dim, shape.taps, pieces.size());
  States expected_states = PoisonedStates(shape);
  const std::vector<float> expected = Run(Reference(), shape, pieces, &expected_states);
  REQUIRE(std::all_of(expected.begin(), expected.end(), [](float x) { return std::isfinite(x); }));
  for (Path* path : PathsWith("GatedDelta")) {
    INFO("path " << path->name());
    States states = PoisonedStates(shape);
    CHECK(Difference(Run(*path, shape, pieces, &states), expected, 2e-5) == "");
    for (const Piece& piece : pieces) {
      if (piece.rows == 0) continue;
      CHECK(Difference(OfSeat(states.delta, shape, piece.seat),
                       OfSeat(expected_states.delta, shape, piece.seat), 2e-5) == "");
      CHECK(OfSeat(states.conv, shape, piece.seat) ==
            OfSeat(expected_states.conv, shape, piece.seat));
    }
  }
}

TEST_CASE("a sequence has the same bits however it is cut, beside others, and in any seat") {
  const Shape shape = {.key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 80};
  constexpr int64_t kRows = 130;
  for (Path* path : AllPaths()) {
    INFO("path " << path->name());
    States whole_states = PoisonedStates(shape);
    const std::vector<float> whole = Run(*path, shape, {{0, kRows, 0}}, &whole_states);
    for (const int64_t cut : {1, 63, 64, 65, 129}) {
      INFO("cut every " << cut);
      States states = PoisonedStates(shape);
      std::vector<float> outputs;
      for (int64_t first = 0; first < kRows; first += cut) {
        const int64_t rows = std::min(cut, kRows - first);
        // Another sequence stands before it.
        const std::vector<float> both =
            Run(*path, shape, {{first, rows, 3, 5}, {first, rows, 1}}, &states);
        outputs.insert(outputs.end(), both.begin() + rows * shape.values(), both.end());
      }
      CHECK(outputs == whole);
      CHECK(OfSeat(states.delta, shape, 1) == OfSeat(whole_states.delta, shape, 0));
      CHECK(OfSeat(states.conv, shape, 1) == OfSeat(whole_states.conv, shape, 0));
    }
  }
}

TEST_CASE("rows that leave nothing have the bits of others, and the seat those before them") {
  const Shape shape = {.key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 80};
  for (Path* path : AllPaths()) {
    INFO("path " << path->name());
    struct Drafts {
      int64_t first, rows;
      int32_t drafts;
    };
    for (const auto [first, rows, drafts] : {Drafts{0, 7, 4}, {9, 7, 4}, {9, 80, 70}}) {
      States states = PoisonedStates(shape);
      if (first > 0) Run(*path, shape, {{0, first, 1}, {0, 3, 0, 5}}, &states);
      States before = states, whole = states;
      const std::vector<float> expected = Run(*path, shape, {{first, rows, 1}}, &whole);
      Run(*path, shape, {{first, rows - drafts, 1}}, &before);
      // Another sequence, without drafts, stands before it.
      const int64_t other = first > 0 ? 3 : 0;
      const std::vector<float> both =
          Run(*path, shape, {{other, 2, 0, 5}, {first, rows, 1, 1, drafts}}, &states);
      CHECK(std::equal(expected.begin(), expected.end(), both.begin() + 2 * shape.values()));
      CHECK(OfSeat(states.delta, shape, 1) == OfSeat(before.delta, shape, 1));
      CHECK(OfSeat(states.conv, shape, 1) == OfSeat(before.conv, shape, 1));
      CHECK_FALSE(AllNan(OfSeat(states.delta, shape, 0)));
    }
  }
}

TEST_CASE("padding and other sequences' seats are not touched") {
  const Shape shape;
  for (Path* path : AllPaths()) {
    INFO("path " << path->name());
    States states = PoisonedStates(shape);
    // A row of no sequence, a sequence without rows, and one with a seat.
    Run(*path, shape, {{0, 2, -1}, {7, 0, 1}, {0, 4, 2}}, &states);
    for (const int64_t seat : {0, 1, 3}) {
      CHECK(AllNan(OfSeat(states.delta, shape, seat)));
      CHECK(AllNan(OfSeat(states.conv, shape, seat)));
    }
    CHECK_FALSE(AllNan(OfSeat(states.delta, shape, 2)));
  }
}

TEST_CASE("ops with seats refuse what does not fit") {
  float memory[64] = {};
  const auto f32 = [&](std::initializer_list<int64_t> shape) {
    return TensorView(memory, DType::kF32, shape);
  };
  const auto i32 = [&](int64_t size) { return TensorView(memory, DType::kI32, {size}); };
  const SeatArgs at = {i32(3), i32(2), i32(2)};
  Path& path = Reference();
  const auto conv = [&](const CausalConvArgs& args) {
    return std::string(path.ops().CausalConv(args, path.stream()).message());
  };
  CHECK(conv({f32({2, 4}), f32({3, 4}), f32({2, 3, 4}), at}).find("CausalConv: weights") == 0);
  CHECK(conv({f32({2, 4}), f32({4, 9}), f32({2, 8, 4}), at}).find("CausalConv: weights") == 0);
  CHECK(conv({f32({2, 4}), f32({4, 4}), f32({2, 4, 4}), at}).find("CausalConv: states") == 0);
  CHECK(conv({f32({2, 4}), f32({4, 4}), f32({2, 3, 4}), {i32(2), i32(2), i32(2)}})
            .find("CausalConv: query_starts") == 0);
  const auto delta = [&](const GatedDeltaArgs& args) {
    return std::string(path.ops().GatedDelta(args, path.stream()).message());
  };
  GatedDeltaArgs args = {f32({1, 2, 2}), f32({1, 1, 2}), f32({1, 1, 2}),    f32({1, 4}),
                         f32({2}),       f32({2}),       f32({2, 2, 2, 2}), at};
  CHECK(delta(args) == "");
  path.Synchronize();
  args.keys = f32({1, 3, 2});
  CHECK(delta(args).find("GatedDelta: keys") == 0);
  args.keys = f32({1, 1, 2});
  args.at.draft_rows = i32(3);
  CHECK(delta(args).find("GatedDelta: draft_rows") == 0);
  args.at.draft_rows = {};
  args.states = f32({2, 2, 2, 1});
  CHECK(delta(args).find("GatedDelta: states") == 0);
}

}  // namespace
}  // namespace tessera::kernels::conformance
