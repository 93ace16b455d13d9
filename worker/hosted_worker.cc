#include "worker/hosted_worker.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <utility>
#include <vector>

#include "kernels/probe.h"
#include "kernels/tuning_table.h"
#include "proto/build_version.h"
#include "proto/model/model_folder.h"
#include "proto/protocol.h"
#include "third_party/spdlog/log.h"
#include "tls/client_tls.h"
#include "worker/formation/link_hub.h"
#include "worker/link_setup.h"
#include "worker/product_rates.h"
#include "worker/registration.h"
#include "worker/transfer/kv_codec_probe.h"
#include "worker/transfer/kv_coder.h"
#include "worker/transfer/kv_inbox.h"
#include "worker/transfer/kv_outbox.h"
#include "worker/transfer/kv_transport.h"
#include "worker/worker_server.h"
#include "worker/worker_service.h"

namespace tessera::worker {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

uint64_t DrawIncarnation() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

// 0, or empty: not measured, or there is no such copy.
struct MeasuredRates {
  double read_bytes_per_second = 0, kv_codec_bytes_per_second = 0;
  std::vector<kernels::TuningTable::Rate> products;
};

MeasuredRates Measure(const WorkerDevice& worker, KvCoder& coder) {
  MeasuredRates rates;
  if (worker.computes_nothing) return rates;
  const auto read = kernels::ProbeReadRate(*worker.device, worker.look);
  if (read.ok()) rates.read_bytes_per_second = *read;
  // What goes through the host's memory shows its rate with less.
  kernels::ProbeOptions less = worker.look;
  less.buffer_bytes = std::min(less.buffer_bytes, int64_t{128} << 20);
  const auto codec = ProbeKvCodecRate(*worker.device, coder, less);
  if (codec.ok()) rates.kv_codec_bytes_per_second = *codec;
  if (worker.tuning != nullptr)
    rates.products = ProductRates(*worker.device, worker.probe, *worker.tuning);
  absl::Status status = read.status();
  status.Update(codec.status());
  if (!status.ok()) {
    Logger("worker").warn("the memory bandwidth cannot be measured: {}",
                          std::string(status.message()));
  }
  return rates;
}

v1::RegisterRequest Introduce(const WorkerOptions& options, const WorkerDevice& worker,
                              const MeasuredRates& rates, int64_t staging_bytes,
                              const std::string& address, const std::vector<std::string>& links,
                              uint64_t incarnation) {
  v1::RegisterRequest request;
  request.set_name(options.name);
  request.set_address(address);
  for (const std::string& link : links) request.add_link_addresses(link);
  request.set_incarnation(incarnation);
  request.set_build_version(std::string(BuildVersion()));
  request.set_protocol_version(kProtocolVersion);
  *request.mutable_device() = worker.info;
  // What KV's staging has taken is nobody's to plan with.
  request.mutable_device()->set_memory_bytes(worker.info.memory_bytes() - staging_bytes);
  request.mutable_device()->set_memory_read_bytes_per_second(rates.read_bytes_per_second);
  request.mutable_device()->set_kv_codec_bytes_per_second(rates.kv_codec_bytes_per_second);
  for (const kernels::TuningTable::Rate& rate : rates.products) {
    v1::ProductRate& product = *request.mutable_device()->add_products();
    product.set_weights(rate.weights);
    product.set_rows(static_cast<int32_t>(rate.rows));
    product.set_read_bytes_per_second(rate.read_bytes_per_second);
  }
  return request;
}

// Members are destroyed in reverse order.
class OneWorker final : public HostedWorker {
 public:
  OneWorker(const WorkerOptions& options, WorkerDevice device)
      : options_(options), worker_(std::move(device)), incarnation_(DrawIncarnation()) {}

  const kernels::Device& device() const override { return *worker_.device; }
  void Drain(double seconds) override { service_->Shutdown(seconds); }
  void Close() override {
    if (registration_ != nullptr) registration_->Stop();
    server_->Shutdown(1.0);
    Logger("worker").info("worker {} ends", options_.name);
  }

  absl::Status Prepare() {
    const double begin_seconds = NowSeconds();
    auto cluster = ClusterTlsFiles::Open(options_.tls.cluster, options_.nccl_plain);
    if (!cluster.ok()) return cluster.status();
    cluster_ = *std::move(cluster);
    auto staged = MakeKvCoder(worker_);
    if (!staged.ok()) return staged.status();
    staged_coder_ = *std::move(staged);
    Logger("worker").info("worker {} measures {}", options_.name, worker_.device->Describe());
    rates_ = Measure(worker_, coder());
    measured_seconds_ = NowSeconds() - begin_seconds;
    return absl::OkStatus();
  }

  absl::Status Start(const HostingTerms& terms) override {
    const double begin_seconds = NowSeconds();
    absl::Status status = OpenLinks(terms);
    if (status.ok()) status = Serve(terms);
    if (!status.ok()) return status;
    const auto address = AdvertisedAddress(options_, server_->address());
    if (!address.ok()) return address.status();
    const double now = NowSeconds();
    Logger("worker").info(
        "worker {} listens on {}; device: {}; memory {} bytes, read at {:.1f} GB/s; started in "
        "{:.3f} s (measured in {:.3f}, listens since {:.3f})",
        options_.name, server_->address(), worker_.device->Describe(),
        worker_.device->memory_bytes(), rates_.read_bytes_per_second / 1e9,
        now - terms.start_seconds, measured_seconds_, now - begin_seconds);
    return Register(terms, *address);
  }

 private:
  KvCoder& coder() { return staged_coder_ == nullptr ? HostKvCoder() : *staged_coder_; }

  absl::Status OpenLinks(const HostingTerms& terms) {
    const auto link_tls = cluster_ == nullptr ? nullptr : cluster_->links();
    const auto link_addresses = LinkListenAddresses(options_, terms.folder, incarnation_);
    if (!link_addresses.ok()) return link_addresses.status();
    auto links = LinkHub::Start({*link_addresses, terms.token, incarnation_, link_tls});
    if (!links.ok()) return links.status();
    links_ = *std::move(links);
    auto advertised_links = AdvertisedLinks(options_.advertise_link, links_->addresses());
    if (!advertised_links.ok()) return advertised_links.status();
    advertised_links_ = *std::move(advertised_links);
    const auto kv_addresses = KvListenAddresses(options_, terms.folder, incarnation_);
    if (!kv_addresses.ok()) return kv_addresses.status();
    const auto transport = ParseKvTransport(options_.kv_transport);
    if (!transport.ok()) return transport.status();
    auto pairs = MakeDevicePairs(worker_, *transport);
    if (!pairs.ok()) return pairs.status();
    pairs_ = *std::move(pairs);
    auto inbox = KvInbox::Start(
        {*kv_addresses, terms.token, incarnation_, &coder(), pairs_.get(), link_tls});
    if (!inbox.ok()) return inbox.status();
    inbox_ = *std::move(inbox);
    auto advertised_kv = AdvertisedLinks(options_.advertise_kv, inbox_->addresses());
    if (!advertised_kv.ok()) return advertised_kv.status();
    advertised_kv_ = *std::move(advertised_kv);
    outbox_ = std::make_unique<KvOutbox>(KvOutboxOptions{.cluster_token = terms.token,
                                                         .incarnation = incarnation_,
                                                         .tls = link_tls,
                                                         .transport = *transport,
                                                         .coder = &coder(),
                                                         .pairs = pairs_.get(),
                                                         .pace = terms.kv_pace});
    return absl::OkStatus();
  }

  absl::Status Serve(const HostingTerms& terms) {
    WorkerServiceOptions service;
    service.incarnation = incarnation_;
    service.cluster_token = terms.token;
    service.probe = worker_.probe;
    SetupOptions& setup = service.setup;
    setup.device = worker_.device.get();
    setup.kernel_path = worker_.info.kernel_path();
    setup.load_model = Model::Load;
    setup.fingerprint = Fingerprint;
    setup.clock = NowSeconds;
    setup.model_folder = options_.model_folder;
    // What is not there yet, Configure names.
    if (const auto found = ResolveModelFolder(options_.model_folder); found.ok())
      setup.model_folder = found->string();
    setup.kv_cache_bytes = options_.kv_cache_memory_bytes;
    setup.state_cache_bytes = worker_.state_cache_bytes;
    OfferLinks(links_.get(), {inbox_.get(), outbox_.get(), advertised_kv_, incarnation_}, coder(),
               &setup);
    setup.memory_left = worker_.memory_left;
    setup.pool_takes_rest = worker_.memory_is_ours;
    if (terms.change_setup) terms.change_setup(&setup);
    kv_staging_bytes_ = setup.kv_staging_bytes;
    service.probe_kv_codec = [this] {
      return ProbeKvCodecRate(*worker_.device, coder(), worker_.probe);
    };
    service.probe_link = [this](const v1::ProbeLinkRequest& request) {
      return links_->Probe(request);
    };
    service.on_ready = [this](bool ready) {
      if (WorkerServer* server = serving_) server->SetReady(ready);
    };
    service_ = std::make_unique<WorkerService>(std::move(service));
    auto server = WorkerServer::Start(options_.listen, !terms.token.empty(), service_.get(),
                                      cluster_ == nullptr ? nullptr : cluster_->certificates());
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    serving_ = server_.get();
    return absl::OkStatus();
  }

  absl::Status Register(const HostingTerms& terms, const std::string& address) {
    if (options_.coordinator.empty()) {
      Logger("worker").warn(
          "no --coordinator HOST:PORT (or TESSERA_COORDINATOR) is given: this worker does not "
          "register and waits at {} for a coordinator to configure it",
          address);
      return absl::OkStatus();
    }
    Logger("worker").info("connecting to the coordinator at {}", options_.coordinator);
    RegistrationOptions registration;
    registration.coordinator = options_.coordinator;
    registration.cluster_token = terms.token;
    absl::StatusOr<ClientTls> tls = ReadClientTls(options_.tls);
    if (!tls.ok()) return tls.status();
    registration.tls = *std::move(tls);
    registration.tls_of_cluster = options_.tls.ca.empty() && !options_.tls.cluster.empty();
    registration.request = Introduce(options_, worker_, rates_, kv_staging_bytes_, address,
                                     advertised_links_, incarnation_);
    registration.request.set_cluster_tls(cluster_ != nullptr);
    registration.plan_epoch = [this] { return service_->plan_epoch(); };
    registration.load = [this] { return service_->load(); };
    registration.leader_term = [this] { return service_->leader_term(); };
    registration.counters = [this] { return Counters(); };
    registration_ = std::make_unique<Registration>(std::move(registration));
    return absl::OkStatus();
  }

  v1::WorkerCounters Counters() {
    v1::WorkerCounters counters = service_->counters();
    counters.MergeFrom(links_->counters());
    counters.set_links_refused(counters.links_refused() + inbox_->refused());
    for (v1::LinkCounters& kv : outbox_->counters()) *counters.add_links() = std::move(kv);
    return counters;
  }

  const WorkerOptions options_;
  const WorkerDevice worker_;
  const uint64_t incarnation_;
  MeasuredRates rates_;
  double measured_seconds_ = 0;
  int64_t kv_staging_bytes_ = 0;
  std::unique_ptr<ClusterTlsFiles> cluster_;     // null: all is plain
  std::unique_ptr<StagedKvCoder> staged_coder_;  // null: the host's
  std::unique_ptr<LinkHub> links_;
  std::vector<std::string> advertised_links_, advertised_kv_;
  std::unique_ptr<DevicePairs> pairs_;
  std::unique_ptr<KvInbox> inbox_;
  std::unique_ptr<KvOutbox> outbox_;
  std::atomic<WorkerServer*> serving_ = nullptr;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<Registration> registration_;  // null: it registers nowhere
};

}  // namespace

absl::StatusOr<std::unique_ptr<HostedWorker>> HostedWorker::Make(const WorkerOptions& options,
                                                                 WorkerDevice device) {
  auto worker = std::make_unique<OneWorker>(options, std::move(device));
  if (absl::Status status = worker->Prepare(); !status.ok()) return status;
  return std::unique_ptr<HostedWorker>(std::move(worker));
}

}  // namespace tessera::worker
