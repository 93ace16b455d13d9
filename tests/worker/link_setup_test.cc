// Every worker takes part in replicas and moves keys and values. The host cannot read a GPU's
// memory: rows and sums go through pinned memory, keys and values through the GPU's kernels too.
// The GPU is the emulated one, given to the worker as if the driver had found it.
#include "worker/link_setup.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "kernels/cuda/device/cuda_device.h"
#include "proto/model/model_folder.h"
#include "tests/kernels/cuda/driver/fake_nccl.h"
#include "tests/logged_lines.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/device_types.h"
#include "worker/model/model.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"

namespace tessera::worker {
namespace {

using Catch::Contains;

const kernels::cuda::NcclTable* nccl_of_cards = nullptr;

// A card, played by the emulator.
absl::StatusOr<OpenedDevice> OpenCard(const DeviceFlags& flags, const DeviceShare&) {
  auto device = kernels::cuda::emulated::CreateCudaDevice({.memory_bytes = flags.memory_bytes,
                                                           .nccl = nccl_of_cards,
                                                           .nccl_version = "2.28.9",
                                                           .uuid = "GPU-0"});
  if (!device.ok()) return device.status();
  OpenedDevice opened;
  opened.device = *std::move(device);
  opened.info.set_kernel_path("mma");
  return opened;
}

WorkerDevice MakeDevice(const std::string& device, const kernels::cuda::NcclTable* nccl = nullptr) {
  nccl_of_cards = nccl;
  DeviceType type = *FindDeviceType(device);
  if (type.has_own_memory) type.open = &OpenCard;
  auto made = MakeWorkerDevice({.name = device, .memory_bytes = int64_t{64} << 20}, type);
  REQUIRE(made.status().message() == "");
  return *std::move(made);
}

// A worker as tessera-worker sets it up, short of serving.
class TestWorker {
 public:
  explicit TestWorker(const std::string& device) : device_(MakeDevice(device)) {
    auto hub = LinkHub::Start({.listen = {"127.0.0.1:0"}});
    REQUIRE(hub.status().message() == "");
    hub_ = *std::move(hub);
    auto coder = MakeKvCoder(device_);
    REQUIRE(coder.status().message() == "");
    staged_ = *std::move(coder);
    KvCoder& used = staged_ == nullptr ? HostKvCoder() : *staged_;
    auto inbox = KvInbox::Start({{"127.0.0.1:0"}, "", 1, &used});
    REQUIRE(inbox.status().message() == "");
    inbox_ = *std::move(inbox);
    setup.device = device_.device.get();
    setup.load_model = Model::Load;
    setup.fingerprint = [](const auto&) { return absl::StatusOr<std::string>("abcd"); };
    setup.clock = [] { return 0.0; };
    OfferLinks(hub_.get(), {inbox_.get(), &outbox_, inbox_->addresses(), 1}, used, &setup);
  }

  absl::StatusOr<ConfiguredEngine> Configure(const v1::ConfigureRequest& request) const {
    SetupCall call;
    call.progress = [](const std::string&, int64_t, int64_t) {};
    return SetUpEngine(request, setup, call);
  }

  bool stages() const { return staged_ != nullptr; }

  SetupOptions setup;

 private:
  const WorkerDevice device_;
  std::unique_ptr<StagedKvCoder> staged_;
  std::unique_ptr<LinkHub> hub_;
  std::unique_ptr<KvInbox> inbox_;
  KvOutbox outbox_{{}};
};

v1::ConfigureRequest Request() {
  const std::string folder = GoldenFolder("llama").string();
  const auto shape = ReadModelFolder(folder);
  REQUIRE(shape.ok());
  v1::ConfigureRequest request;
  request.set_replica("r7");
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

// What an engine answered until two answers were there: errors, and where KV may go.
class Answers final : public ReplySink {
 public:
  bool MayDeliver() override { return true; }
  void Deliver(v1::SessionReply reply) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const v1::TokenEvent& event : reply.events()) errors_ += event.error() + "\n";
    for (const v1::Reserved& reserved : reply.reserved()) {
      for (const v1::KvRoute& route : reserved.target().routes()) errors_ += route.addresses(0);
      errors_ += reserved.error() + "\n";
    }
    arrived_.notify_all();
  }
  void Close(const absl::Status&) override {}

  std::string WaitForLines(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait_for(lock, std::chrono::seconds(20),
                      [&] { return std::count(errors_.begin(), errors_.end(), '\n') >= count; });
    return errors_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::string errors_;
};

TEST_CASE("every worker joins others and moves keys and values, a GPU's through staging") {
  for (const char* device : {"cpu", "cuda-emulated", "cuda:0"}) {
    INFO(device);
    const TestWorker worker(device);
    CHECK(worker.setup.join);
    CHECK(worker.setup.open_kv_port);
    CHECK(worker.stages() == (std::string(device) != "cpu"));
    CHECK(worker.setup.kv_staging_bytes == (worker.stages() ? StagedKvCoder::kStagingBytes : 0));
  }
}

TEST_CASE("a GPU's worker makes room for keys and values, and knows where its own may go") {
  const TestWorker gpu("cuda:0");
  const auto configured = gpu.Configure(Request());
  REQUIRE(configured.status().message() == "");
  const auto answers = std::make_shared<Answers>();
  Engine& engine = *configured->engine;
  engine.Attach(answers);
  v1::Reserve reserve;
  reserve.set_submission_id(1);
  reserve.set_attempt(1);
  for (const int32_t token : {4, 5, 6}) reserve.add_prompt_token_ids(token);
  *reserve.mutable_senders() = configured->ready.kv_shares();
  engine.Reserve(answers, reserve);
  v1::Submit submit = MakeSubmit(2, {4, 5, 6}, 2);
  submit.mutable_kv_target();
  engine.Submit(answers, submit);
  const std::string errors = answers->WaitForLines(2);
  CHECK_THAT(errors, Contains("127.0.0.1:") && Contains("kv_target has 0 routes"));
  engine.Stop(absl::CancelledError("the test is over"));
}

TEST_CASE("a GPU with NCCL joins others for keys and values, and nccl is refused elsewhere") {
  tests::FakeNccl fake;
  const kernels::cuda::NcclTable table = TableOf(&fake);
  const tests::LoggedLines lines("worker");
  for (const auto asked : {std::optional<KvTransport>(), std::optional(KvTransport::kNccl)}) {
    const WorkerDevice gpu = MakeDevice("cuda:0", &table);
    const auto pairs = MakeDevicePairs(gpu, asked);
    REQUIRE(pairs.status().message() == "");
    REQUIRE(*pairs != nullptr);
    CHECK((*pairs)->maker().library() == "NCCL 2.28.9");
  }
  CHECK(lines.Count("KV from and to other GPUs goes by NCCL 2.28.9 where they have it too, else it "
                    "is staged: through ") == 2);
  for (const char* device : {"cpu", "cuda-emulated", "cuda:0"}) {
    INFO(device);
    const WorkerDevice without = MakeDevice(device);
    const auto none = MakeDevicePairs(without, std::nullopt);
    REQUIRE(none.status().message() == "");
    CHECK(*none == nullptr);
    CHECK_THAT(std::string(MakeDevicePairs(without, KvTransport::kNccl).status().message()),
               Contains("--kv-transport nccl: ") && Contains("it has no NCCL"));
  }
  CHECK(lines.Count("KV from and to other replicas is staged: through ") == 2);
}

}  // namespace
}  // namespace tessera::worker
