#include "coordinator/grpc_door/server_reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/grpcpp.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/health.pb.h"
#include "proto/reflection.grpc.pb.h"

namespace tessera::coordinator {
namespace {

namespace v1reflection = grpc::reflection::v1;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using Request = v1reflection::ServerReflectionRequest;
using Response = v1reflection::ServerReflectionResponse;

// The file and what it imports, each once.
void AddFile(const FileDescriptor& file, std::set<std::string>& seen,
             v1reflection::FileDescriptorResponse& response) {
  if (!seen.insert(file.name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), seen, response);
}

const FileDescriptor* FileOfExtension(const v1reflection::ExtensionRequest& request) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return nullptr;
  const FieldDescriptor* field = pool.FindExtensionByNumber(type, request.extension_number());
  return field == nullptr ? nullptr : field->file();
}

void SetError(const std::string& what, Response& response) {
  response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
  response.mutable_error_response()->set_error_message(
      absl::StrCat(what, " is not known to this server"));
}

void AnswerFile(const FileDescriptor* file, const std::string& what, Response& response) {
  if (file == nullptr) {
    SetError(what, response);
    return;
  }
  std::set<std::string> seen;
  AddFile(*file, seen, *response.mutable_file_descriptor_response());
}

void AnswerExtensions(const std::string& type_name, Response& response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(type_name);
  if (type == nullptr) {
    SetError(type_name, response);
    return;
  }
  auto& numbers = *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(type_name);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  for (const FieldDescriptor* field : extensions) numbers.add_extension_number(field->number());
}

class Stream final : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit Stream(const std::vector<std::string>& services) : services_(services) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    response_.Clear();
    response_.set_valid_host(request_.host());
    *response_.mutable_original_request() = request_;
    Answer();
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (ok) {
      StartRead(&request_);
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone"));
    }
  }
  void OnDone() override { delete this; }

 private:
  void Answer() {
    const DescriptorPool& pool = *DescriptorPool::generated_pool();
    switch (request_.message_request_case()) {
      case Request::kFileByFilename:
        AnswerFile(pool.FindFileByName(request_.file_by_filename()), request_.file_by_filename(),
                   response_);
        break;
      case Request::kFileContainingSymbol:
        AnswerFile(pool.FindFileContainingSymbol(request_.file_containing_symbol()),
                   request_.file_containing_symbol(), response_);
        break;
      case Request::kFileContainingExtension:
        AnswerFile(FileOfExtension(request_.file_containing_extension()),
                   request_.file_containing_extension().containing_type(), response_);
        break;
      case Request::kAllExtensionNumbersOfType:
        AnswerExtensions(request_.all_extension_numbers_of_type(), response_);
        break;
      case Request::kListServices:
        for (const std::string& name : services_)
          response_.mutable_list_services_response()->add_service()->set_name(name);
        break;
      case Request::MESSAGE_REQUEST_NOT_SET:
        response_.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
        response_.mutable_error_response()->set_error_message("the request contains no query");
        break;
    }
  }

  const std::vector<std::string>& services_;
  Request request_;
  Response response_;
};

class Reflection final : public v1reflection::ServerReflection::CallbackService {
 public:
  explicit Reflection(std::vector<std::string> services) : services_(std::move(services)) {
    services_.push_back(v1reflection::ServerReflection::service_full_name());
    // Links the description of gRPC's own health service, which brings none along.
    grpc::health::v1::HealthCheckRequest::descriptor();
  }
  grpc::ServerBidiReactor<Request, Response>* ServerReflectionInfo(
      grpc::CallbackServerContext*) override {
    return new Stream(services_);
  }

 private:
  std::vector<std::string> services_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeServerReflection(std::vector<std::string> services) {
  return std::make_unique<Reflection>(std::move(services));
}

}  // namespace tessera::coordinator
