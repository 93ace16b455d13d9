// The memory of a device of its own (the emulated GPU, by its counters): what is configured again
// and again gives back all that it took, and a step takes none.
#include <catch2/catch.hpp>
#include <string>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "proto/layers/kv_sizes.h"
#include "proto/model/model_folder.h"
#include "tests/logged_lines.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/engine/engine_core.h"
#include "worker/engine/engine_setup.h"

namespace tessera::worker {
namespace {

namespace emulated = kernels::cuda::emulated;

std::unique_ptr<kernels::Device> MakeDevice() {
  auto device = emulated::CreateCudaDevice({.memory_bytes = int64_t{256} << 20});
  REQUIRE(device.ok());
  return *std::move(device);
}

int64_t FreeBytes() {
  size_t free_bytes = 0, total_bytes = 0;
  emulated::cudaMemGetInfo(&free_bytes, &total_bytes);
  return static_cast<int64_t>(free_bytes);
}

v1::ConfigureRequest RequestOf(const std::string& folder) {
  const auto shape = ReadModelFolder(folder);
  REQUIRE(shape.ok());
  v1::ConfigureRequest request;
  request.set_model_folder(folder);
  request.set_model_fingerprint("abcd");
  *request.mutable_model() = *shape;
  *request.mutable_share() = WholeShare(*shape);
  request.set_weight_dtype(v1::DATA_TYPE_FLOAT32);
  request.set_block_tokens(8);
  request.set_max_sequences(2);
  request.set_max_batched_tokens(16);
  request.set_max_model_len_tokens(32);
  return request;
}

v1::ConfigureRequest Request(const std::string& name = "llama") {
  return RequestOf(GoldenFolder(name).string());
}

SetupOptions SetupOn(kernels::Device* device) {
  SetupOptions setup;
  setup.device = device;
  setup.load_model = Model::Load;
  setup.fingerprint = [](const auto&) { return absl::StatusOr<std::string>("abcd"); };
  setup.clock = [] { return 0.0; };
  return setup;
}

}  // namespace

TEST_CASE("twenty reconfigurations leave the device's free memory as it was") {
  const auto device = MakeDevice();
  const SetupOptions setup = SetupOn(device.get());
  const int64_t free_bytes = FreeBytes();
  for (int i = 0; i < 20; ++i) {
    INFO("reconfiguration " << i);
    SetupCall call;
    call.progress = [](const std::string&, int64_t, int64_t) {};
    auto configured = SetUpEngine(Request(), setup, call);
    REQUIRE(configured.status().message() == "");
    CHECK(FreeBytes() < free_bytes);
    configured->engine->Stop(absl::CancelledError("the next one comes"));
    configured->engine.reset();
    REQUIRE(FreeBytes() == free_bytes);
  }
}

TEST_CASE("where the memory is the worker's alone, the pool takes what weights and steps leave") {
  auto device = emulated::CreateCudaDevice({.memory_bytes = int64_t{3} << 20});
  REQUIRE(device.ok());
  v1::ConfigureRequest request = Request();
  request.set_max_sequences(64);  // of full length, more than fit
  request.set_max_model_len_tokens(120);
  SetupOptions setup = SetupOn(device->get());
  const auto pool_bytes = [&] {
    SetupCall call;
    call.progress = [](const std::string&, int64_t, int64_t) {};
    const auto configured = SetUpEngine(request, setup, call);
    REQUIRE(configured.status().message() == "");
    const v1::WorkerReady& ready = configured->ready;
    const int64_t block_bytes = ready.kv_pool_bytes() / ready.kv_blocks();
    CHECK((*device)->Allocate(2 * block_bytes).ok() == !setup.pool_takes_rest);
    configured->engine->Stop(absl::CancelledError("measured"));
    return ready.kv_pool_bytes();
  };
  const int64_t half = pool_bytes();
  setup.pool_takes_rest = true;
  CHECK(pool_bytes() > half);
}

TEST_CASE("windows are kept apart whatever a replica's role, also by a kept share") {
  const auto device = MakeDevice();
  SetupOptions setup = SetupOn(device.get());
  v1::ConfigureRequest request = Request("qwen2_window");
  request.set_max_model_len_tokens(120);
  SetupCall call;
  call.progress = [](const std::string&, int64_t, int64_t) {};
  call.on_loaded = [&](std::shared_ptr<LoadedShare> loaded) { call.loaded = std::move(loaded); };
  const auto blocks = [&](v1::ReplicaRole role) {
    request.set_role(role);
    auto configured = SetUpEngine(request, setup, call);
    REQUIRE(configured.status().message() == "");
    CHECK(configured->ready.kv_blocks() == call.loaded->kv_blocks.common);
    configured->engine->Stop(absl::CancelledError("the next one comes"));
    return call.loaded->kv_blocks;
  };
  const KvLimits limits = {8, LongestWindow(request.model()), 120, 2, 16};
  REQUIRE(limits.window_tokens > 0);
  const KvBlocks apart = blocks(v1::REPLICA_ROLE_UNSPECIFIED);
  // Two sequences of full length, which is what may run at once, their windows and what is kept.
  CHECK(apart == KvBlocks(2 * 120 / 8, MaxUsefulWindowBlocks(limits)));
  CHECK(blocks(v1::REPLICA_ROLE_DECODE) == apart);
  CHECK(blocks(v1::REPLICA_ROLE_PREFILL) == apart);
}

constexpr int64_t kSmallBytes = int64_t{8} << 20;

// Set up where the pool takes the rest of kSmallBytes, of which sequences could use more.
std::shared_ptr<LoadedShare> TakeTheRest(const v1::ConfigureRequest& request,
                                         kernels::Device* device) {
  SetupOptions setup = SetupOn(device);
  setup.pool_takes_rest = true;
  std::shared_ptr<LoadedShare> share;
  SetupCall call;
  call.progress = [](const std::string&, int64_t, int64_t) {};
  call.on_loaded = [&](std::shared_ptr<LoadedShare> loaded) { share = std::move(loaded); };
  const auto configured = SetUpEngine(request, setup, call);
  REQUIRE(configured.status().message() == "");
  REQUIRE(configured->ready.kv_blocks() * request.block_tokens() <
          request.max_sequences() * request.max_model_len_tokens());
  configured->engine->Stop(absl::CancelledError("the share is used without it"));
  return share;
}

// Decodes batches of several sizes on a device whose physical memory is `more_bytes` beyond what it
// may use; returns how many graphs were kept.
int64_t GraphsKept(int64_t more_bytes) {
  emulated::Inject({.memory_bytes = kSmallBytes + more_bytes, .graph_bytes = 20'000});
  auto device = emulated::CreateCudaDevice({.memory_bytes = kSmallBytes});
  REQUIRE(device.ok());
  v1::ConfigureRequest request = Request();
  request.set_max_sequences(12);
  request.set_max_model_len_tokens(4000);
  const std::shared_ptr<LoadedShare> share = TakeTheRest(request, device->get());
  REQUIRE(emulated::GraphsAlive() == 0);
  auto options = ReadEngineOptions(request);
  REQUIRE(options.ok());
  options->limits.total_blocks = share->kv_blocks.common;
  EngineCore core(*options,
                  *LocalExecutor::Create(EngineCore::LimitsOf(*options), SamplingOf(*options),
                                         share->model.get(), device->get()));
  EngineCore::Events events;
  for (const int sequences : {1, 2, 3, 5, 9}) {
    for (int i = 0; i < sequences; ++i) {
      v1::Submit submit = MakeSubmit(100 * sequences + i, {1, 2, 3, 4, 5}, 8);
      submit.set_ignore_eos(true);
      core.Submit(std::move(submit), 0, &events);
    }
    while (core.Busy()) core.Step([] { return 0.0; }, &events);
  }
  for (const v1::TokenEvent& event : events) CHECK(event.error() == "");
  const int64_t kept = emulated::GraphsAlive();
  emulated::Inject({});
  return kept;
}

TEST_CASE("where the pool takes the rest, graphs find their memory") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  const int64_t with_more = GraphsKept(64 << 20);
  CHECK(with_more > 5);
  CHECK(GraphsKept(0) == with_more);
#endif
}

TEST_CASE("where the pool takes the rest, attention on tensor cores finds its workspace") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  auto device = emulated::CreateCudaDevice({.memory_bytes = kSmallBytes});
  REQUIRE(device.ok());
  v1::ConfigureRequest request = Request("llama_bf16_heads_64");
  request.set_weight_dtype(v1::DATA_TYPE_BFLOAT16);
  request.set_max_sequences(4);
  request.set_max_model_len_tokens(8000);
  CHECK(TakeTheRest(request, device->get())->kv_blocks.common > 0);
#endif
}

TEST_CASE("weights go through pinned memory, and the log says how fast") {
  const tests::LoggedLines lines("worker");
  {
    const auto device = MakeDevice();
    SetupOptions setup = SetupOn(device.get());
    setup.clock = [seconds = 0.0]() mutable { return seconds += 1e-6; };
    SetupCall call;
    call.progress = [](const std::string&, int64_t, int64_t) {};
    auto configured = SetUpEngine(Request(), setup, call);
    REQUIRE(configured.status().message() == "");
    CHECK(emulated::PinnedBytes() > 0);
    configured->engine->Stop(absl::CancelledError("loaded"));
  }
  CHECK(emulated::PinnedBytes() == 0);
  CHECK(lines.Count("weights: ") == 1);
  CHECK(lines.Count(" GB/s") == 1);
  CHECK(lines.Count(" 0.00 GB/s") == 0);
}

TEST_CASE("where no host memory can be pinned, loading says so and what to do") {
  emulated::Inject({.pinned_bytes = 1000});
  const auto device = MakeDevice();
  SetupCall call;
  call.progress = [](const std::string&, int64_t, int64_t) {};
  const absl::Status refused = SetUpEngine(Request(), SetupOn(device.get()), call).status();
  emulated::Inject({});
  CHECK(absl::IsResourceExhausted(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Contains("loading weights: the system pins no 1048576 bytes") &&
                 Catch::Contains("ulimit -l"));
}

TEST_CASE("steps allocate nothing on the device, until a context is as long as it may be") {
  const std::pair<std::string, v1::Speculation> cases[] = {
      {GoldenFolder("llama").string(), v1::SPECULATION_OFF},
      {GoldenFolder("qwen3_5").string(), v1::SPECULATION_OFF},
      {GoldenFolder("qwen3_5").string(), v1::SPECULATION_NGRAM},
      {"tests/golden/drafts/qwen3_5", v1::SPECULATION_MTP},
      {"tests/golden/drafts/deepseek_v3", v1::SPECULATION_MTP}};
  for (const auto& [folder, speculation] : cases) {
    CAPTURE(folder, static_cast<int>(speculation));
    const auto device = MakeDevice();
    v1::ConfigureRequest request = RequestOf(folder);
    request.set_speculation(speculation);
    if (speculation == v1::SPECULATION_MTP)
      request.mutable_model()->mutable_draft_head()->set_used(true);
    auto options = ReadEngineOptions(request);
    REQUIRE(options.ok());
    options->all_drafts = true;
    const KvBlockBytes bytes =
        BlockBytesOf(request.model(), request.share(), 4, 8, /*windows_apart=*/false);
    const KvBlocks blocks(16, 0, bytes.seat > 0 ? 2 : 0);
    options->limits.total_blocks = blocks.common;
    options->seats = blocks.seats;
    auto model_options = ReadModelOptions(request);
    REQUIRE(model_options.ok());
    model_options->limits = EngineCore::LimitsOf(*options);
    auto model = Model::Load(*model_options, *device, [](int64_t, int64_t) {});
    REQUIRE(model.ok());
    const auto kv = device->Allocate(BytesOf(blocks, bytes));
    REQUIRE(kv.ok());
    REQUIRE((*model)->AttachKv(kv->data(), blocks, 8).ok());
    EngineCore core(
        *options, *LocalExecutor::Create(model_options->limits, SamplingOf(*options), model->get(),
                                         device.get(), nullptr, nullptr, 0, nullptr, 8));
    EngineCore::Events events;
    for (uint64_t id = 1; id <= 2; ++id) {
      v1::Submit submit = MakeSubmit(id, {1, 2, 3, 4, 5}, 100);
      submit.set_ignore_eos(true);
      submit.set_top_logprobs(2);
      submit.mutable_sampling()->set_temperature(static_cast<float>(id - 1));
      core.Submit(std::move(submit), 0, &events);
    }
    const int64_t allocations = emulated::AllocationsMade(), free_bytes = FreeBytes();
    while (core.Busy()) core.Step([] { return 0.0; }, &events);
    CHECK(events.size() == 2 * (32 - 5));
    if (speculation == v1::SPECULATION_MTP) CHECK(core.load().drafts() > 0);
    CHECK(emulated::AllocationsMade() == allocations);
    CHECK(FreeBytes() == free_bytes);
  }
}

}  // namespace tessera::worker
