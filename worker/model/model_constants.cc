#include "worker/model/model_constants.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "worker/model/model_rope.h"

namespace tessera::worker {
namespace {

using kernels::TensorView;

// `values` is as long as the view.
template <typename Element>
absl::Status Fill(const TensorView& view, const std::vector<Element>& values,
                  kernels::Stream& stream) {
  absl::Status status = stream.CopyToDevice(view.data, values.data(),
                                            static_cast<int64_t>(values.size() * sizeof(Element)));
  status.Update(stream.Synchronize());
  return status;
}

}  // namespace

absl::Status FillConstants(const ModelOptions& options, const ModelBuffers& buffers,
                           kernels::Stream& stream) {
  absl::Status status;
  const std::vector<v1::Rope> ropes = RopesOf(options.model).ropes;
  for (size_t i = 0; i < ropes.size() && status.ok(); ++i) {
    const int64_t longest = options.max_model_len_tokens > 0 ? options.max_model_len_tokens
                                                             : options.model.max_positions();
    status = Fill(buffers.ropes[i].frequencies, InverseFrequencies(ropes[i], longest), stream);
  }
  if (!buffers.ones.empty()) {
    status.Update(Fill(buffers.ones, std::vector<float>(buffers.ones.rows(), 1.0f), stream));
  }
  if (!buffers.own_numbers.empty()) {
    std::vector<int32_t> numbers(buffers.own_numbers.rows());
    std::iota(numbers.begin(), numbers.end(), 0);
    status.Update(Fill(buffers.own_numbers, numbers, stream));
  }
  return status;
}

}  // namespace tessera::worker
