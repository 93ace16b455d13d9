// KV from any layout to any other: every element arrives once, and nothing else is written.
#include "kvcache/kv_layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kvcache/kv_row_floats.h"
#include "kvcache/raw_codec.h"

namespace tessera::kvcache {
namespace {

constexpr std::byte kUntouched{0xee};

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : random_(seed) {}
  int32_t From(int32_t low, int32_t high) {  // both included
    return low + static_cast<int32_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  std::mt19937& random() { return random_; }

 private:
  std::mt19937 random_;
};

struct Shape {
  int32_t layers, kv_heads;
  int64_t head_dim, tokens;
  int planes;
};

// A replica's ranks: stages of any length, each of any width; ranks share a head where there are
// more of them than heads.
std::vector<KvShare> RandomLayout(const Shape& shape, Numbers* numbers) {
  std::vector<KvShare> shares;
  for (int32_t layer = 0; layer < shape.layers;) {
    const int32_t end = numbers->From(layer + 1, shape.layers);
    const int32_t width = numbers->From(1, 2 * shape.kv_heads);
    for (int32_t rank = 0; rank < width; ++rank) {
      IndexRange heads = {shape.kv_heads * rank / width, shape.kv_heads * (rank + 1) / width};
      if (width > shape.kv_heads) heads.end = heads.begin + 1;
      shares.push_back({{layer, end}, heads});
    }
    layer = end;
  }
  return shares;
}

// A rank's pool with a block table of its own for the sequence.
struct Rank {
  KvPool pool;
  std::vector<std::byte> memory;
  std::vector<int32_t> table;
};

std::vector<Rank> MakeRanks(const Shape& shape, const std::vector<KvShare>& shares,
                            Numbers* numbers) {
  constexpr int64_t kBlockTokens[] = {1, 4, 16, 64};
  const int64_t block_tokens = kBlockTokens[numbers->From(0, 3)];
  const kernels::DType type =
      numbers->From(0, 1) == 0 ? kernels::DType::kF32 : kernels::DType::kBF16;
  const int64_t used = (shape.tokens + block_tokens - 1) / block_tokens;
  std::vector<int32_t> blocks(static_cast<size_t>(used + numbers->From(0, 3)));
  std::iota(blocks.begin(), blocks.end(), 0);
  if (numbers->From(0, 2) > 0) std::shuffle(blocks.begin(), blocks.end(), numbers->random());
  std::vector<Rank> ranks(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    Rank& rank = ranks[i];
    rank.pool = {nullptr,      shares[i],      type,        static_cast<int64_t>(blocks.size()),
                 block_tokens, shape.head_dim, shape.planes};
    rank.memory.assign(static_cast<size_t>(rank.pool.bytes()), kUntouched);
    rank.pool.memory = rank.memory.data();
    rank.table.assign(blocks.begin(), blocks.begin() + used);
  }
  return ranks;
}

// Exact in bfloat16 too.
float Value(int32_t layer, int plane, int32_t head, int64_t token, int64_t dim) {
  return static_cast<float>((layer * 31 + plane * 17 + head * 7 + token * 3 + dim) % 251 + 1);
}

void Put(std::byte* at, kernels::DType type, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto high = static_cast<uint16_t>(bits >> 16);
  if (type == kernels::DType::kF32) std::memcpy(at, &bits, sizeof bits);
  if (type == kernels::DType::kBF16) std::memcpy(at, &high, sizeof high);
}

// Calls visit(place, value) for every element of tokens [first, end).
template <typename Visit>
void ForEachElement(const Rank& rank, int64_t first, int64_t end, const Visit& visit) {
  const KvPool& pool = rank.pool;
  for (int32_t layer = pool.share.layers.begin; layer < pool.share.layers.end; ++layer) {
    for (int plane = 0; plane < pool.planes; ++plane) {
      for (int32_t head = pool.share.kv_heads.begin; head < pool.share.kv_heads.end; ++head) {
        for (int64_t token = first; token < end; ++token) {
          const int64_t slot =
              rank.table[token / pool.block_tokens] * pool.block_tokens + token % pool.block_tokens;
          for (int64_t dim = 0; dim < pool.head_dim; ++dim) {
            visit(pool.At(layer, plane, head, slot) + dim * kernels::SizeInBytes(pool.type),
                  Value(layer, plane, head, token, dim));
          }
        }
      }
    }
  }
}

TEST_CASE("KV of random layouts arrives once, whole, and alone") {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    Numbers numbers(seed);
    const Shape shape = {numbers.From(1, 9), numbers.From(1, 6), numbers.From(1, 3),
                         numbers.From(1, 90), numbers.From(0, 2) == 0 ? 1 : kKvPlanes};
    std::vector<Rank> senders = MakeRanks(shape, RandomLayout(shape, &numbers), &numbers);
    std::vector<Rank> receivers = MakeRanks(shape, RandomLayout(shape, &numbers), &numbers);
    for (Rank& rank : senders) {
      ForEachElement(rank, 0, shape.tokens,
                     [&](std::byte* at, float value) { Put(at, rank.pool.type, value); });
    }
    std::vector<KvShare> from, to;
    for (const Rank& rank : senders) from.push_back(rank.pool.share);
    for (const Rank& rank : receivers) to.push_back(rank.pool.share);
    const auto routes = RouteKv(from, to);
    REQUIRE(routes.ok());

    // A prefix that the receivers have is not sent; the rest goes in two chunks.
    const int64_t cached = numbers.From(0, static_cast<int32_t>(shape.tokens) - 1);
    const int64_t middle =
        numbers.From(static_cast<int32_t>(cached), static_cast<int32_t>(shape.tokens));
    int64_t elements = 0;
    for (const auto& [first, end] : {std::pair(cached, middle), std::pair(middle, shape.tokens)}) {
      for (const KvRoute& route : *routes) {
        const Rank& sender = senders[route.sender];
        const Rank& receiver = receivers[route.receiver];
        const KvPool& source = sender.pool;
        std::vector<std::byte> wire(static_cast<size_t>(RawBytes(
            route.layers, route.kv_heads, end - first, shape.head_dim, source.type, shape.planes)));
        EncodeRaw(source, route.layers, route.kv_heads,
                  SlotRuns(sender.table, source.block_tokens, first, end), wire.data());
        DecodeRaw(wire, source.type, route.layers, route.kv_heads,
                  SlotRuns(receiver.table, receiver.pool.block_tokens, first, end), receiver.pool);
        elements += static_cast<int64_t>(wire.size()) / kernels::SizeInBytes(source.type);
      }
    }
    int64_t wanted = 0;
    for (Rank& rank : receivers) {
      std::vector<std::byte> expected(rank.memory.size(), kUntouched);
      ForEachElement(rank, cached, shape.tokens, [&](const std::byte* at, float value) {
        Put(expected.data() + (at - rank.memory.data()), rank.pool.type, value);
        ++wanted;
      });
      REQUIRE(rank.memory == expected);
    }
    REQUIRE(elements == wanted);  // each once
  }
}

// Rows of `type` in a pool of one layer and head, whose slots follow each other.
std::vector<std::byte> RowsOf(kernels::DType type, const std::vector<float>& values,
                              int64_t head_dim) {
  const auto rows = static_cast<int64_t>(values.size()) / head_dim;
  std::vector<std::byte> bytes(static_cast<size_t>(rows * kernels::KvRowBytes(type, head_dim)));
  WithKvType(type, [&](auto constant) {
    for (int64_t i = 0; i < rows; ++i)
      StoreRow<decltype(constant)::value>(values.data() + i * head_dim, head_dim,
                                          bytes.data() + i * kernels::KvRowBytes(type, head_dim));
  });
  return bytes;
}

std::vector<float> FloatsOf(kernels::DType type, const std::vector<std::byte>& bytes,
                            int64_t head_dim) {
  std::vector<float> values(bytes.size() / kernels::KvRowBytes(type, head_dim) * head_dim);
  WithKvType(type, [&](auto constant) {
    for (size_t i = 0; i < values.size() / head_dim; ++i)
      LoadRow<decltype(constant)::value>(bytes.data() + i * kernels::KvRowBytes(type, head_dim),
                                         head_dim, values.data() + i * head_dim);
  });
  return values;
}

TEST_CASE("keys and values in 8 bits go as they are, and become what pools of other types keep") {
  const int64_t head_dim = GENERATE(6, 64);
  constexpr kernels::DType kTypes[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                       kernels::DType::kF16, kernels::DType::kI8,
                                       kernels::DType::kF8};
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> values(static_cast<size_t>(2 * 5 * head_dim));  // keys, values of 5 tokens
  for (float& value : values) value = normal(random);
  for (const kernels::DType from : kTypes) {
    for (const kernels::DType to : kTypes) {
      CAPTURE(head_dim, static_cast<int>(from), static_cast<int>(to));
      std::vector<std::byte> sent = RowsOf(from, values, head_dim);
      const KvPool source = {sent.data(), {{0, 1}, {0, 1}}, from, 1, 5, head_dim};
      REQUIRE(source.bytes() == static_cast<int64_t>(sent.size()));
      std::vector<std::byte> kept(static_cast<size_t>(2 * 7 * kernels::KvRowBytes(to, head_dim)),
                                  kUntouched);
      const KvPool target = {kept.data(), {{0, 1}, {0, 1}}, to, 7, 1, head_dim};
      std::vector<std::byte> wire(static_cast<size_t>(RawBytes({0, 1}, {0, 1}, 5, head_dim, from)));
      const SlotRun all = {0, 5}, behind = {1, 5};
      EncodeRaw(source, {0, 1}, {0, 1}, {&all, 1}, wire.data());
      CHECK(wire == sent);
      DecodeRaw(wire, from, {0, 1}, {0, 1}, {&behind, 1}, target);
      // What a pool of the receiver's type has of what the sender's rows are.
      const std::vector<std::byte> expected =
          from == to ? sent : RowsOf(to, FloatsOf(from, sent, head_dim), head_dim);
      const int64_t row = kernels::KvRowBytes(to, head_dim);
      for (const int64_t plane : {0, 1}) {
        const auto begin = kept.begin() + (plane * 7 + 1) * row;
        CHECK(std::equal(begin, begin + 5 * row, expected.begin() + plane * 5 * row));
        CHECK(std::all_of(begin - row, begin, [](std::byte b) { return b == kUntouched; }));
      }
    }
  }
}

TEST_CASE("ranks that hold the same heads share the work") {
  // Four ranks on two heads send to one that holds both: layers 0 to 3.
  const std::vector<KvShare> senders = {
      {{0, 4}, {0, 1}}, {{0, 4}, {0, 1}}, {{0, 4}, {1, 2}}, {{0, 4}, {1, 2}}};
  const std::vector<KvShare> receivers = {{{0, 2}, {0, 2}}, {{2, 4}, {0, 2}}};
  const auto routes = RouteKv(senders, receivers);
  REQUIRE(routes.ok());
  CHECK(*routes == std::vector<KvRoute>{{0, 0, {0, 2}, {0, 1}},
                                        {2, 0, {0, 2}, {1, 2}},
                                        {1, 1, {2, 4}, {0, 1}},
                                        {3, 1, {2, 4}, {1, 2}}});
}

TEST_CASE("layouts that do not cover each other are refused with both values") {
  const std::vector<KvShare> senders = {{{0, 3}, {0, 4}}, {{3, 5}, {0, 2}}};
  const std::vector<KvShare> receivers = {{{0, 5}, {0, 4}}};
  const auto routes = RouteKv(senders, receivers);
  REQUIRE(absl::IsInvalidArgument(routes.status()));
  CHECK(std::string(routes.status().message()) ==
        "receiver 0 holds kv head 2 of layer 3, and none of the 2 senders does");
  const std::vector<KvShare> empty = {{{2, 2}, {0, 4}}};
  CHECK(absl::IsInvalidArgument(RouteKv(empty, receivers).status()));
}

TEST_CASE("slots that follow each other are one run") {
  const std::vector<int32_t> table = {4, 5, 2};
  CHECK(SlotRuns(table, 4, 0, 12) == std::vector<SlotRun>{{16, 8}, {8, 4}});
  CHECK(SlotRuns(table, 4, 3, 9) == std::vector<SlotRun>{{19, 5}, {8, 1}});
  CHECK(SlotRuns(table, 4, 5, 5).empty());
}

TEST_CASE("float32 to bfloat16 rounds to the nearest, ties to even") {
  const float values[] = {1.0f, 1.00390625f, 1.01171875f, -3.14159f, 3.4e38f, INFINITY, NAN};
  const uint16_t expected[] = {0x3f80, 0x3f80, 0x3f82, 0xc049, 0x7f80, 0x7f80, 0x7fc0};
  std::vector<std::byte> memory(2 * 7 * 2);
  const KvPool pool = {memory.data(), {{0, 1}, {0, 1}}, kernels::DType::kBF16, 1, 1, 7};
  std::vector<std::byte> wire(2 * 7 * 4);
  std::memcpy(wire.data(), values, sizeof values);
  const SlotRun slot = {0, 1};
  DecodeRaw(wire, kernels::DType::kF32, {0, 1}, {0, 1}, {&slot, 1}, pool);
  for (int i = 0; i < 7; ++i) {
    uint16_t bits;
    std::memcpy(&bits, memory.data() + 2 * i, 2);
    INFO(values[i]);
    CHECK(bits == expected[i]);
  }
}

}  // namespace
}  // namespace tessera::kvcache
