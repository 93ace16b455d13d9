#include "kvcache/quantised_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/half_floats.h"
#include "kvcache/kv_row_floats.h"

namespace tessera::kvcache {
namespace {

using kernels::Float16;
using kernels::FromFloat;
using kernels::KvWireCoding;
using kernels::ToFloat;

int64_t Chunks(int64_t head_dim) { return kernels::ValueChunks(head_dim); }

KvWireCoding CodingOf(int bits) { return bits == 8 ? KvWireCoding::kInt8 : KvWireCoding::kInt4; }

// Scales of one group of a plane.
int64_t Scales(int plane, int64_t tokens, int64_t head_dim) {
  return kernels::KvGroupScales(plane == 1, tokens, head_dim);
}

int64_t GroupBytes(int plane, int64_t tokens, int64_t head_dim, int bits) {
  return kernels::KvGroupBytes(plane == 1, tokens, head_dim, CodingOf(bits));
}

// How codes of one run of elements become values.
struct Step {
  float scale = 0;
  float zero = 0;
};

Step StepOf(float least, float most, int levels, Float16* scale, Float16* zero) {
  *zero = RoundKv<Float16>(least);
  *scale = RoundKv<Float16>((most - least) / static_cast<float>(levels));
  return {ToFloat(*scale), ToFloat(*zero)};
}

// One group of one head as floats, [tokens, head_dim], and its encoded form.
class Group {
 public:
  Group(int64_t head_dim, int bits)
      : head_dim_(head_dim),
        bits_(bits),
        levels_((1 << bits) - 1),
        values_(static_cast<size_t>(kQuantisedGroup * head_dim)),
        codes_(values_.size()),
        scales_(static_cast<size_t>(std::max(head_dim, kQuantisedGroup * Chunks(head_dim)))),
        zeros_(scales_.size()) {}

  float* row(int64_t token) { return values_.data() + token * head_dim_; }

  void Encode(int plane, int64_t tokens, std::byte* out) {
    plane == 0 ? QuantiseChannels(tokens) : QuantiseTokens(tokens);
    const auto scales = static_cast<size_t>(Scales(plane, tokens, head_dim_));
    std::memcpy(out, scales_.data(), scales * sizeof(Float16));
    std::memcpy(out + scales * sizeof(Float16), zeros_.data(), scales * sizeof(Float16));
    Pack(tokens * head_dim_, out + 2 * scales * sizeof(Float16));
  }

  void Decode(int plane, int64_t tokens, const std::byte* in) {
    const auto scales = static_cast<size_t>(Scales(plane, tokens, head_dim_));
    std::memcpy(scales_.data(), in, scales * sizeof(Float16));
    std::memcpy(zeros_.data(), in + scales * sizeof(Float16), scales * sizeof(Float16));
    Unpack(tokens * head_dim_, in + 2 * scales * sizeof(Float16));
    for (int64_t token = 0; token < tokens; ++token) {
      float* const values = row(token);
      const uint8_t* const codes = codes_.data() + token * head_dim_;
      for (int64_t c = 0; c < head_dim_; ++c) {
        const int64_t at = plane == 0 ? c : token * Chunks(head_dim_) + c / kQuantisedGroup;
        values[c] = ToFloat(zeros_[at]) + ToFloat(scales_[at]) * static_cast<float>(codes[c]);
      }
    }
  }

 private:
  uint8_t CodeOf(float value, const Step& step) const {
    if (!(step.scale > 0)) return 0;
    const float code = std::nearbyint((value - step.zero) / step.scale);
    return static_cast<uint8_t>(std::clamp(code, 0.0f, static_cast<float>(levels_)));
  }

  // A step over elements that are not all finite.
  static void Spoil(Float16* scale, Float16* zero) {
    *scale = *zero = FromFloat<Float16>(std::numeric_limits<float>::quiet_NaN());
  }

  void QuantiseChannels(int64_t tokens) {
    for (int64_t c = 0; c < head_dim_; ++c) {
      float least = row(0)[c], most = least;
      bool finite = true;
      for (int64_t token = 0; token < tokens; ++token) {
        const float value = row(token)[c];
        finite &= std::isfinite(value);
        least = std::min(least, value);
        most = std::max(most, value);
      }
      const Step step = StepOf(least, most, levels_, &scales_[c], &zeros_[c]);
      if (!finite) Spoil(&scales_[c], &zeros_[c]);
      for (int64_t token = 0; token < tokens; ++token) {
        codes_[token * head_dim_ + c] = finite ? CodeOf(row(token)[c], step) : 0;
      }
    }
  }

  void QuantiseTokens(int64_t tokens) {
    for (int64_t token = 0; token < tokens; ++token) {
      const float* const values = row(token);
      for (int64_t chunk = 0; chunk < Chunks(head_dim_); ++chunk) {
        const int64_t first = chunk * kQuantisedGroup;
        const int64_t end = std::min(first + kQuantisedGroup, head_dim_);
        const bool finite = std::all_of(values + first, values + end,
                                        [](float value) { return std::isfinite(value); });
        const auto [least, most] = std::minmax_element(values + first, values + end);
        const int64_t at = token * Chunks(head_dim_) + chunk;
        const Step step = StepOf(*least, *most, levels_, &scales_[at], &zeros_[at]);
        if (!finite) Spoil(&scales_[at], &zeros_[at]);
        for (int64_t c = first; c < end; ++c) {
          codes_[token * head_dim_ + c] = finite ? CodeOf(values[c], step) : 0;
        }
      }
    }
  }

  void Pack(int64_t count, std::byte* out) const {
    if (bits_ == 8) {
      std::memcpy(out, codes_.data(), static_cast<size_t>(count));
      return;
    }
    for (int64_t i = 0; i < count; i += 2) {
      const int high = i + 1 < count ? codes_[i + 1] << 4 : 0;
      out[i / 2] = static_cast<std::byte>(codes_[i] | high);
    }
  }
  void Unpack(int64_t count, const std::byte* in) {
    if (bits_ == 8) {
      std::memcpy(codes_.data(), in, static_cast<size_t>(count));
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      const auto byte = static_cast<uint8_t>(in[i / 2]);
      codes_[i] = i % 2 == 0 ? byte & 0xf : byte >> 4;
    }
  }

  const int64_t head_dim_;
  const int bits_;
  const int levels_;
  std::vector<float> values_;
  std::vector<uint8_t> codes_;
  std::vector<Float16> scales_, zeros_;
};

void Load(const KvPool& pool, const std::byte* memory, float* values) {
  WithKvType(pool.type,
             [&](auto type) { LoadRow<decltype(type)::value>(memory, pool.head_dim, values); });
}

void Store(const KvPool& pool, const float* values, std::byte* memory) {
  WithKvType(pool.type,
             [&](auto type) { StoreRow<decltype(type)::value>(values, pool.head_dim, memory); });
}

// Calls visit(plane, tokens, row) for each group of the rectangle, in the order of the bytes on the
// way; row(token) is where a token of the group stands.
template <typename Visit>
void ForEachGroup(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
                  std::span<const SlotRun> runs, const Visit& visit) {
  std::vector<int64_t> slots;
  for (const SlotRun& run : runs) {
    for (int64_t i = 0; i < run.tokens; ++i) slots.push_back(run.slot + i);
  }
  const auto count = static_cast<int64_t>(slots.size());
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (int plane = 0; plane < pool.planes; ++plane) {
      for (int32_t head = kv_heads.begin; head < kv_heads.end; ++head) {
        for (int64_t first = 0; first < count; first += kQuantisedGroup) {
          visit(plane, std::min(kQuantisedGroup, count - first), [&](int64_t token) {
            return pool.At(layer, plane, head, slots[static_cast<size_t>(first + token)]);
          });
        }
      }
    }
  }
}

}  // namespace

int64_t QuantisedBytes(const IndexRange& layers, const IndexRange& kv_heads, int64_t tokens,
                       int64_t head_dim, int bits, int planes) {
  return layers.size() * kernels::KvPlanesBytes(false, planes, kv_heads.size(), tokens, head_dim,
                                                CodingOf(bits), 0);
}

void EncodeQuantised(const KvPool& pool, const IndexRange& layers, const IndexRange& kv_heads,
                     std::span<const SlotRun> slots, int bits, std::byte* out) {
  Group group(pool.head_dim, bits);
  ForEachGroup(pool, layers, kv_heads, slots, [&](int plane, int64_t tokens, const auto& row) {
    for (int64_t i = 0; i < tokens; ++i) Load(pool, row(i), group.row(i));
    group.Encode(plane, tokens, out);
    out += GroupBytes(plane, tokens, pool.head_dim, bits);
  });
}

void DecodeQuantised(std::span<const std::byte> in, int bits, const IndexRange& layers,
                     const IndexRange& kv_heads, std::span<const SlotRun> slots,
                     const KvPool& pool) {
  const std::byte* from = in.data();
  Group group(pool.head_dim, bits);
  ForEachGroup(pool, layers, kv_heads, slots, [&](int plane, int64_t tokens, const auto& row) {
    group.Decode(plane, tokens, from);
    for (int64_t i = 0; i < tokens; ++i) Store(pool, group.row(i), row(i));
    from += GroupBytes(plane, tokens, pool.head_dim, bits);
  });
}

}  // namespace tessera::kvcache
