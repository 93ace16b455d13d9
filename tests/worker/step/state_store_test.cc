// States go to host memory and come back into another seat, on a device whose memory the host
// cannot read; copies that do not agree with what is kept are refused by name.
#include "worker/step/state_store.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "kvcache/block_pool.h"
#include "tests/fakes/far_device.h"

namespace tessera::worker {
namespace {

using kernels::TensorView;

constexpr int64_t kSeats = 3, kWide = 4, kNarrow = 2;

// A layer with wide states and one with narrow ones.
class StatesModel : public Model {
 public:
  explicit StatesModel(kernels::Device& device) {
    auto memory = device.Allocate(kSeats * SeatBytes());
    REQUIRE(memory.ok());
    memory_ = *std::move(memory);
    for (int64_t i = 0; i < kSeats * (kWide + kNarrow); ++i) values()[i] = static_cast<float>(i);
  }
  float* values() { return reinterpret_cast<float*>(ToNear(memory_.data())); }

  int64_t seats() const override { return kSeats; }
  int64_t SeatBytes() const override { return (kWide + kNarrow) * int64_t{sizeof(float)}; }
  std::vector<TensorView> states() const override {
    const TensorView wide(memory_.data(), kernels::DType::kF32, {kSeats, kWide});
    return {wide, TensorView(memory_.data() + kSeats * kWide * sizeof(float), kernels::DType::kF32,
                             {kSeats, kNarrow})};
  }
  int64_t KvBlockBytes(int64_t) const override { return 0; }
  absl::Status AttachKv(std::byte*, KvBlocks, int64_t) override { return absl::OkStatus(); }
  absl::Status Forward(const StepInputs&, kernels::Stream&) override { return absl::OkStatus(); }
  TensorView stage_rows() const override { return {}; }
  TensorView logits() const override { return {}; }
  int64_t weight_bytes() const override { return 0; }
  int64_t activation_bytes() const override { return 0; }

 private:
  kernels::Buffer memory_;
};

class StateStoreTest {
 public:
  // Rows [first, first + rows) of one sequence in `seat`.
  absl::Status Run(int32_t seat, int64_t first, int64_t rows,
                   const std::vector<StateCopy>& restores, const std::vector<StateCopy>& saves) {
    const std::vector<int32_t> tokens(64, 5);
    arrays_.Begin();
    arrays_.AddSequence({.tokens = tokens,
                         .prompt_tokens = 64,
                         .first = first,
                         .rows = rows,
                         .blocks = &blocks_,
                         .seat = seat,
                         .seat_owner = 1});
    arrays_.Seal();
    absl::Status status = store_->Check(arrays_, restores, saves);
    if (status.ok()) status = store_->Restore(arrays_, restores, *stream_);
    if (status.ok()) status = store_->Save(arrays_, saves, *stream_);
    status.Update(stream_->Synchronize());
    return status;
  }
  std::string Refusal(int32_t seat, int64_t first, int64_t rows,
                      const std::vector<StateCopy>& restores, const std::vector<StateCopy>& saves) {
    const absl::Status status = Run(seat, first, rows, restores, saves);
    CHECK(absl::IsFailedPrecondition(status));
    return std::string(status.message());
  }
  std::vector<float> Seat(int32_t seat) {
    const float* wide = model_.values() + seat * kWide;
    const float* narrow = model_.values() + kSeats * kWide + seat * kNarrow;
    std::vector<float> values(wide, wide + kWide);
    values.insert(values.end(), narrow, narrow + kNarrow);
    return values;
  }

 private:
  static StepLimits Limits() {
    StepLimits limits;
    limits.max_tokens = limits.max_logit_rows = 64;
    limits.max_sequences = 4;
    limits.max_blocks_per_sequence = 1;
    return limits;
  }
  static std::unique_ptr<kernels::Device> MakeDevice() {
    auto device = kernels::CreateCpuDevice({.memory_bytes = 1 << 20, .cores_shared = true});
    REQUIRE(device.ok());
    return MakeFar(*std::move(device));
  }

  kvcache::BlockPool pool_{1, 64};
  kvcache::BlockTable blocks_ = [this] {
    kvcache::BlockTable table(&pool_);
    table.Grow(64);
    return table;
  }();
  StepArrays arrays_{Limits()};
  std::unique_ptr<kernels::Device> device_ = MakeDevice();
  StatesModel model_{*device_};
  std::unique_ptr<StateStore> store_ = *StateStore::Create(2, &model_, device_.get());
  std::unique_ptr<kernels::Stream> stream_ = *device_->CreateStream();
};

TEST_CASE("what is saved of one seat comes back into another, of every layer") {
  StateStoreTest test;
  const std::vector<float> saved = test.Seat(1), untouched = test.Seat(0);
  REQUIRE(test.Run(1, 0, 16, {}, {{0, 1, 77, 16}}).ok());
  REQUIRE(test.Run(2, 16, 3, {{0, 1, 77, 16}}, {}).ok());
  CHECK(test.Seat(2) == saved);
  CHECK(test.Seat(0) == untouched);
}

TEST_CASE("a state of another name, place or position is refused") {
  StateStoreTest test;
  REQUIRE(test.Run(1, 0, 16, {}, {{0, 1, 77, 16}}).ok());
  CHECK_THAT(test.Refusal(2, 16, 3, {{0, 1, 76, 16}}, {}),
             Catch::Contains("wanted is number 76 of position 16, there is number 77"));
  CHECK_THAT(test.Refusal(2, 16, 3, {{0, 0, 77, 16}}, {}), Catch::Contains("there is number 0"));
  CHECK_THAT(test.Refusal(2, 17, 3, {{0, 1, 77, 17}}, {}), Catch::Contains("of position 16"));
  CHECK_THAT(test.Refusal(2, 17, 3, {{0, 1, 77, 16}}, {}),
             Catch::Contains("it is of position 16, the sequence's first row is at 17"));
  CHECK_THAT(test.Refusal(2, 16, 3, {{0, 2, 77, 16}}, {}),
             Catch::Contains("no such place; this worker has 2"));
  CHECK_THAT(test.Refusal(2, 16, 3, {{1, 1, 77, 16}}, {}), Catch::Contains("no such sequence"));
  CHECK_THAT(test.Refusal(-1, 16, 3, {{0, 1, 77, 16}}, {}), Catch::Contains("it has no seat"));
  CHECK_THAT(test.Refusal(1, 16, 3, {}, {{0, 1, 78, 18}}),
             Catch::Contains("of position 18, the sequence ends at 19"));
  CHECK_THAT(test.Refusal(1, 16, 3, {}, {{0, -1, 78, 19}}), Catch::Contains("no such place"));
  // A refused step has saved nothing.
  CHECK(test.Run(2, 16, 3, {{0, 1, 77, 16}}, {}).ok());
}

}  // namespace
}  // namespace tessera::worker
