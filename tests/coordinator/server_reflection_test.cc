#include "coordinator/grpc_door/server_reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/health.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"

namespace tessera::coordinator {
namespace {

using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

class Server {
 public:
  Server()
      : reflection_(MakeServerReflection(
            {v1::Inference::service_full_name(), grpc::health::v1::Health::service_full_name()})) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(reflection_.get());
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }
  ~Server() { server_->Shutdown(); }

  // One stream, as grpcurl keeps it.
  std::vector<ServerReflectionResponse> Ask(const std::vector<ServerReflectionRequest>& requests) {
    grpc::ClientContext context;
    auto stub = grpc::reflection::v1::ServerReflection::NewStub(channel_);
    auto stream = stub->ServerReflectionInfo(&context);
    std::vector<ServerReflectionResponse> responses;
    for (const ServerReflectionRequest& request : requests) {
      REQUIRE(stream->Write(request));
      REQUIRE(stream->Read(&responses.emplace_back()));
    }
    stream->WritesDone();
    CHECK(stream->Finish().ok());
    return responses;
  }
  grpc::Server& grpc() { return *server_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<grpc::Service> reflection_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

ServerReflectionRequest Symbol(const std::string& name) {
  ServerReflectionRequest request;
  request.set_file_containing_symbol(name);
  return request;
}

}  // namespace

TEST_CASE("a client that knows nothing builds every service's messages from reflection") {
  Server server;
  ServerReflectionRequest list;
  list.set_list_services("*");
  const auto listed = server.Ask({list});
  std::vector<std::string> names;
  for (const auto& service : listed[0].list_services_response().service())
    names.push_back(service.name());
  CHECK(names == std::vector<std::string>{"tessera.v1.Inference", "grpc.health.v1.Health",
                                          "grpc.reflection.v1.ServerReflection"});
  for (const std::string& name : names) {
    INFO(name);
    const auto answer = server.Ask({Symbol(name)});
    google::protobuf::DescriptorPool pool;
    const auto& files = answer[0].file_descriptor_response().file_descriptor_proto();
    REQUIRE(files.size() > 0);
    for (int i = files.size() - 1; i >= 0; --i) {  // imports come behind
      google::protobuf::FileDescriptorProto file;
      REQUIRE(file.ParseFromString(files[i]));
      REQUIRE(pool.BuildFile(file) != nullptr);
    }
    CHECK(pool.FindServiceByName(name) != nullptr);
  }
}

TEST_CASE("what is not known is an error, and the stream goes on") {
  Server server;
  ServerReflectionRequest file, extension, extensions;
  file.set_file_by_filename("no/such.proto");
  extension.mutable_file_containing_extension()->set_containing_type("no.Such");
  extensions.set_all_extension_numbers_of_type("no.Such");
  const auto answers =
      server.Ask({Symbol("no.Such"), file, extension, extensions, ServerReflectionRequest()});
  for (const auto& answer : answers) {
    CHECK(answer.has_error_response());
    CHECK(answer.error_response().error_code() != 0);
  }
  CHECK(answers[0].original_request().file_containing_symbol() == "no.Such");
  extensions.set_all_extension_numbers_of_type(v1::ChatRequest::descriptor()->full_name());
  file.set_file_by_filename("proto/inference.proto");
  const auto known = server.Ask({extensions, file});
  CHECK(known[0].all_extension_numbers_response().base_type_name() == "tessera.v1.ChatRequest");
  CHECK(known[1].file_descriptor_response().file_descriptor_proto_size() >= 1);
}

TEST_CASE("gRPC's own health service answers as its description says") {
  Server server;
  server.grpc().GetHealthCheckService()->SetServingStatus("a.Service", false);
  auto stub = grpc::health::v1::Health::NewStub(server.channel());
  const auto check = [&](const std::string& name, grpc::health::v1::HealthCheckResponse* reply) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(name);
    return stub->Check(&context, request, reply);
  };
  grpc::health::v1::HealthCheckResponse reply;
  REQUIRE(check("", &reply).ok());
  CHECK(reply.status() == grpc::health::v1::HealthCheckResponse::SERVING);
  REQUIRE(check("a.Service", &reply).ok());
  CHECK(reply.status() == grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  CHECK(check("none", &reply).error_code() == grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service("a.Service");
  auto watch = stub->Watch(&context, request);
  REQUIRE(watch->Read(&reply));
  CHECK(reply.status() == grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  server.grpc().GetHealthCheckService()->SetServingStatus("a.Service", true);
  REQUIRE(watch->Read(&reply));
  CHECK(reply.status() == grpc::health::v1::HealthCheckResponse::SERVING);
  context.TryCancel();
}

}  // namespace tessera::coordinator
