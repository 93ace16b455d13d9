#include "coordinator/grpc_door/grpc_port.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/grpc_door/server_reflection.h"
#include "tls/grpc_credentials.h"

namespace tessera::coordinator {
namespace {

constexpr int kMaxMessageBytes = 32 << 20;  // as of an HTTP body
constexpr char kInferenceService[] = "tessera.v1.Inference";
constexpr char kCoordinatorService[] = "tessera.v1.Coordinator";
constexpr char kPlanningService[] = "tessera.v1.Planning";

}  // namespace

GrpcPort::~GrpcPort() = default;

absl::StatusOr<std::unique_ptr<GrpcPort>> GrpcPort::Open(const GrpcPortOptions& options) {
  std::unique_ptr<GrpcPort> opened(new GrpcPort());
  grpc::EnableDefaultHealthCheckService(true);
  if (options.describes_itself) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  opened->reflection_ =
      MakeServerReflection({kInferenceService, kCoordinatorService, kPlanningService,
                            "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"});
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // Else two coordinators would share a port, and the connections, without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (options.certificates != nullptr) {
    auto tls = ServerTls(*options.certificates, options.members);
    if (!tls.ok()) return tls.status();
    credentials = *std::move(tls);
  }
  builder.AddListeningPort(options.address, credentials, &opened->port_);
  builder.RegisterService(options.cluster);
  builder.RegisterService(options.inference);
  builder.RegisterService(options.planning);
  if (options.describes_itself) builder.RegisterService(opened->reflection_.get());
  opened->server_ = builder.BuildAndStart();
  if (opened->server_ == nullptr || opened->port_ == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options.address,
                                               " for gRPC; choose another --host or --grpc-port"));
  }
  opened->SetServing(false);
  for (const char* service : {kCoordinatorService, kPlanningService})
    opened->server_->GetHealthCheckService()->SetServingStatus(service, true);
  return opened;
}

void GrpcPort::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(kInferenceService, serving);
}

void GrpcPort::Stop(double seconds) {
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::milliseconds(static_cast<int64_t>(1e3 * seconds)));
}

}  // namespace tessera::coordinator
