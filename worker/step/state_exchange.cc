#include "worker/step/state_exchange.h"

#include <utility>
#include <vector>

namespace tessera::worker {

absl::StatusOr<std::shared_ptr<StateExchange>> StateExchange::Create(
    const kvcache::StateShape& shape, kvcache::KvPool pool, const Model* model,
    kernels::Device* device) {
  std::shared_ptr<StateExchange> exchange(new StateExchange(shape, model));
  auto memory = device->AllocateHost(pool.bytes());
  if (!memory.ok()) return memory.status();
  auto staged = device->AllocateHost(model->SeatBytes());
  if (!staged.ok()) return staged.status();
  exchange->memory_ = *std::move(memory);
  exchange->staged_ = *std::move(staged);
  exchange->pool_ = std::move(pool);
  exchange->pool_.memory = exchange->memory_.data();
  return exchange;
}

// Layers have two tensors each in Model::states(), the convolution's before the matrices.
void StateExchange::Convert(int32_t place, bool pack) {
  auto* at = reinterpret_cast<float*>(staged_.data());
  const std::vector<kernels::TensorView> states = model_->states();
  for (size_t i = 0; i + 1 < states.size(); i += 2) {
    const kvcache::LayerState layer = {at, at + states[i].RowElements()};
    at = layer.delta + states[i + 1].RowElements();
    const int32_t number = pool_.share.layers.begin + static_cast<int32_t>(i / 2);
    if (pack) {
      kvcache::PackState(shape_, layer, number, place, pool_);
    } else {
      kvcache::UnpackState(shape_, pool_, number, place, layer);
    }
  }
}

absl::Status StateExchange::EnqueueConvert(int32_t place, bool pack, kernels::Stream& stream) {
  struct Work {
    StateExchange* exchange;
    int32_t place;
    bool pack;
  };
  return kernels::EnqueueHost<Work>(stream,
                                    [](const Work& work) {
                                      work.exchange->Convert(work.place, work.pack);
                                      return absl::OkStatus();
                                    },
                                    {this, place, pack});
}

absl::Status StateExchange::Fill(int32_t seat, int32_t place, kernels::Stream& stream) {
  std::byte* to = staged_.data();
  for (const kernels::TensorView& states : model_->states()) {
    const int64_t bytes = states.RowElements() * static_cast<int64_t>(sizeof(float));
    absl::Status copied = stream.CopyToHost(to, states.Row<float>(seat), bytes);
    if (!copied.ok()) return copied;
    to += bytes;
  }
  return EnqueueConvert(place, /*pack=*/true, stream);
}

absl::Status StateExchange::Restore(int32_t place, int32_t seat, kernels::Stream& stream) {
  absl::Status status = EnqueueConvert(place, /*pack=*/false, stream);
  const std::byte* from = staged_.data();
  for (const kernels::TensorView& states : model_->states()) {
    if (!status.ok()) break;
    const int64_t bytes = states.RowElements() * static_cast<int64_t>(sizeof(float));
    status = stream.CopyToDevice(states.Row<float>(seat), from, bytes);
    from += bytes;
  }
  return status;
}

}  // namespace tessera::worker
