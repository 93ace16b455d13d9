#include "scheduler/search/best/request_mixes.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::scheduler {
namespace {

bool Alike(const LengthMoments& a, const LengthMoments& b) {
  return a.uncached_prompt_tokens == b.uncached_prompt_tokens &&
         a.prefill_pairs == b.prefill_pairs && a.decode_steps == b.decode_steps &&
         a.decode_context_sum == b.decode_context_sum &&
         a.max_sequence_tokens == b.max_sequence_tokens;
}

// At a corner of a cell.
struct Corner {
  LengthMoments lengths;
  double value = 0;
};

std::vector<Corner> CornersOf(const std::vector<RequestKind>& kinds, std::span<const double> values,
                              const MixCell& cell) {
  std::vector<Corner> corners;
  for (const ValueParts& parts : cell.corners) {
    const std::vector<double> shares = SharesOf(parts, values);
    Corner& corner = corners.emplace_back();
    corner.lengths = MixOf(kinds, shares);
    for (size_t w = 0; w < shares.size(); ++w) corner.value += shares[w] * values[w];
  }
  return corners;
}

}  // namespace

std::vector<RequestKind> RequestKindsOf(const std::vector<RequestClass>& classes) {
  std::vector<RequestKind> kinds;
  for (const RequestClass& of : classes) {
    if (of.share <= 0) continue;
    const LengthMoments lengths = MomentsOf(of.samples);
    const auto known = std::find_if(kinds.begin(), kinds.end(), [&](const RequestKind& kind) {
      return Alike(kind.lengths, lengths);
    });
    if (known == kinds.end()) {
      kinds.push_back({of.share, lengths});
    } else {
      known->share += of.share;
    }
  }
  return kinds;
}

std::vector<double> SharesOf(const ValueParts& parts, std::span<const double> values) {
  std::vector<double> shares(parts.size());
  double sum = 0;
  for (size_t w = 0; w < parts.size(); ++w) sum += shares[w] = parts[w] / values[w];
  for (double& share : shares) share /= sum;
  return shares;
}

LengthMoments MixOf(const std::vector<RequestKind>& kinds, std::span<const double> shares) {
  LengthMoments mixed;
  double sum = 0;
  for (size_t w = 0; w < kinds.size(); ++w) {
    if (shares[w] <= 0) continue;
    mixed = Mix(mixed, sum, kinds[w].lengths, shares[w]);
    sum += shares[w];
  }
  return mixed;
}

double MixCell::Width() const {
  double width = 0;
  for (const ValueParts& a : corners) {
    for (const ValueParts& b : corners) {
      for (size_t w = 0; w < a.size(); ++w) width = std::max(width, a[w] - b[w]);
    }
  }
  return width;
}

ValueParts MixCell::Middle() const {
  ValueParts middle(corners.front().size(), 0);
  for (const ValueParts& corner : corners) {
    for (size_t w = 0; w < middle.size(); ++w)
      middle[w] += corner[w] / static_cast<double>(corners.size());
  }
  return middle;
}

std::pair<MixCell, MixCell> MixCell::Halves() const {
  size_t from = 0, to = 1;
  double longest = -1;
  for (size_t i = 0; i < corners.size(); ++i) {
    for (size_t j = i + 1; j < corners.size(); ++j) {
      double length = 0;
      for (size_t w = 0; w < corners[i].size(); ++w)
        length = std::max(length, std::abs(corners[i][w] - corners[j][w]));
      if (length > longest) {
        longest = length;
        from = i;
        to = j;
      }
    }
  }
  ValueParts middle(corners[from].size());
  for (size_t w = 0; w < middle.size(); ++w) middle[w] = (corners[from][w] + corners[to][w]) / 2;
  std::pair<MixCell, MixCell> halves = {*this, *this};
  halves.first.corners[to] = middle;
  halves.second.corners[from] = std::move(middle);
  return halves;
}

std::vector<MixCell> MixesByLongest(const std::vector<RequestKind>& kinds) {
  std::vector<double> lengths;
  for (const RequestKind& kind : kinds) lengths.push_back(kind.lengths.max_sequence_tokens);
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  std::vector<MixCell> all;
  for (const double longest : lengths) {
    MixCell& mixes = all.emplace_back();
    for (size_t w = 0; w < kinds.size(); ++w) {
      if (kinds[w].lengths.max_sequence_tokens <= longest)
        mixes.corners.emplace_back(kinds.size(), 0).at(w) = 1;
    }
  }
  return all;
}

LoadBelow Below(Role role, const std::vector<RequestKind>& kinds, std::span<const double> values,
                const MixCell& cell) {
  const std::vector<Corner> corners = CornersOf(kinds, values, cell);
  double pairs_per_token = std::numeric_limits<double>::infinity(), longest = 0;
  LoadBelow below;
  for (const Corner& corner : corners) {
    below.value = std::max(below.value, corner.value);
    longest = std::max(longest, corner.lengths.max_sequence_tokens);
    if (corner.lengths.uncached_prompt_tokens > 0) {
      pairs_per_token = std::min(
          pairs_per_token, corner.lengths.prefill_pairs / corner.lengths.uncached_prompt_tokens);
    }
  }
  LengthMoments& lengths = below.lengths;
  if (role == Role::kPrefill) {
    double value_per_token = 0;
    for (const Corner& corner : corners) {
      const double tokens = corner.lengths.uncached_prompt_tokens;
      value_per_token = std::max(value_per_token, corner.value / tokens);
      lengths.uncached_prompt_tokens = std::max(lengths.uncached_prompt_tokens, tokens);
    }
    below.value = value_per_token * lengths.uncached_prompt_tokens;
  } else {
    const auto least = [&](double LengthMoments::*x) {
      double least = std::numeric_limits<double>::infinity();
      for (const Corner& corner : corners)
        least = std::min(least, corner.lengths.*x / corner.value);
      return least * below.value;
    };
    lengths.uncached_prompt_tokens = least(&LengthMoments::uncached_prompt_tokens);
    lengths.decode_steps = least(&LengthMoments::decode_steps);
    lengths.decode_context_sum = least(&LengthMoments::decode_context_sum);
    for (const Corner& corner : corners) {
      const double rows = lengths.decode_steps / below.value;  // for a unit of value
      below.rows = std::min(below.rows, rows * corner.value / corner.lengths.decode_steps);
    }
  }
  lengths.prompt_tokens = lengths.uncached_prompt_tokens;
  lengths.output_tokens = lengths.decode_steps + 1;
  lengths.prefill_pairs = lengths.uncached_prompt_tokens * pairs_per_token;
  // Between corners that have fewer kinds lie mixes that have all of them.
  lengths.max_sequence_tokens = longest;
  return below;
}

}  // namespace tessera::scheduler
