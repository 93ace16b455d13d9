// A gRPC client of a running coordinator, for tests: grpc_probe ADDRESS COMMAND [TEXT [KEY]]
//
//   health SERVICE      prints SERVING, NOT_SERVING or the error's code
//   services            prints what reflection v1 lists, one a line; a service that reflection does
//                       not describe gets "undescribed" behind its name
//   services-v1alpha    the same of reflection v1alpha
//   complete TEXT       prints the streamed text and, on a line of its own, "N prompt, N
//   completion"
//   plan REQUEST        the planning request as JSON; prints the reply as JSON
//   running-plan ""     prints the plan in force as JSON

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <iostream>
#include <memory>
#include <string>

#include "proto/document.h"
#include "proto/health.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "proto/planning.grpc.pb.h"
#include "proto/reflection.grpc.pb.h"
#include "tests/end_to_end/reflection.grpc.pb.h"

namespace {

int Fail(const grpc::Status& status) {
  std::cout << "code " << status.error_code() << ": " << status.error_message() << "\n";
  return 1;
}

void Authorize(const std::string& key, grpc::ClientContext* context) {
  if (!key.empty()) context->AddMetadata("authorization", "Bearer " + key);
}

int Print(const grpc::Status& status, const google::protobuf::Message& reply) {
  if (!status.ok()) return Fail(status);
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(reply, &json, options).ok()) return 1;
  std::cout << json << "\n";
  return 0;
}

int Health(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  if (!status.ok()) return Fail(status);
  std::cout << (response.status() == 1 ? "SERVING" : "NOT_SERVING") << "\n";
  return 0;
}

// As grpcurl does: one stream, which lists and then describes.
template <typename Stub, typename Request, typename Response>
int Services(Stub& stub) {
  grpc::ClientContext context;
  auto stream = stub.ServerReflectionInfo(&context);
  Request request;
  request.set_list_services("*");
  Response listed, described;
  if (stream->Write(request)) stream->Read(&listed);
  for (const auto& service : listed.list_services_response().service()) {
    request.set_file_containing_symbol(service.name());
    const bool known = stream->Write(request) && stream->Read(&described) &&
                       described.has_file_descriptor_response();
    std::cout << service.name() << (known ? "" : " undescribed") << "\n";
  }
  stream->WritesDone();
  const grpc::Status status = stream->Finish();
  return status.ok() ? 0 : Fail(status);
}

int Complete(const std::shared_ptr<grpc::Channel>& channel, const std::string& text,
             const std::string& key) {
  grpc::ClientContext context;
  Authorize(key, &context);
  tessera::v1::ChatRequest request;
  tessera::v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content(text);
  request.mutable_options()->set_temperature(0);
  auto stream = tessera::v1::Inference::NewStub(channel)->StreamChat(&context, request);
  tessera::v1::CompletionChunk chunk;
  std::string answer;
  while (stream->Read(&chunk)) answer += chunk.choice().text();
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return Fail(status);
  std::cout << answer << "\n"
            << chunk.usage().prompt_tokens() << " prompt, " << chunk.usage().completion_tokens()
            << " completion\n";
  return 0;
}

int Plan(const std::shared_ptr<grpc::Channel>& channel, const std::string& text,
         const std::string& key) {
  tessera::v1::PlanRequest request;
  if (const absl::Status read = tessera::ReadDocument(text, "request", &request); !read.ok()) {
    std::cout << read.message() << "\n";
    return 1;
  }
  grpc::ClientContext context;
  Authorize(key, &context);
  tessera::v1::PlanReply reply;
  return Print(tessera::v1::Planning::NewStub(channel)->Plan(&context, request, &reply), reply);
}

int RunningPlan(const std::shared_ptr<grpc::Channel>& channel, const std::string& key) {
  grpc::ClientContext context;
  Authorize(key, &context);
  tessera::v1::GetPlanReply reply;
  return Print(tessera::v1::Planning::NewStub(channel)->GetPlan(&context, {}, &reply), reply);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const auto channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  const std::string command = argv[2];
  const std::string text = argc > 3 ? argv[3] : "";
  if (command == "health") return Health(channel, text);
  if (command == "services") {
    namespace v1 = grpc::reflection::v1;
    const auto stub = v1::ServerReflection::NewStub(channel);
    return Services<v1::ServerReflection::Stub, v1::ServerReflectionRequest,
                    v1::ServerReflectionResponse>(*stub);
  }
  if (command == "services-v1alpha") {
    namespace v1alpha = grpc::reflection::v1alpha;
    const auto stub = v1alpha::ServerReflection::NewStub(channel);
    return Services<v1alpha::ServerReflection::Stub, v1alpha::ServerReflectionRequest,
                    v1alpha::ServerReflectionResponse>(*stub);
  }
  const std::string key = argc > 4 ? argv[4] : "";
  if (command == "complete") return Complete(channel, text, key);
  if (command == "plan") return Plan(channel, text, key);
  if (command == "running-plan") return RunningPlan(channel, key);
  return 2;
}
