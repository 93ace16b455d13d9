#include "coordinator/grpc_door/planning_service.h"

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>

#include "proto/planning.grpc.pb.h"
#include "proto/status_wire.h"

namespace tessera::coordinator {
namespace {

std::string Authorization(const grpc::CallbackServerContext& context) {
  const auto& all = context.client_metadata();
  const auto it = all.find("authorization");
  return it == all.end() ? "" : std::string(it->second.data(), it->second.size());
}

class PlanningService final : public v1::Planning::CallbackService {
 public:
  explicit PlanningService(PlanningDesk& desk) : desk_(desk) {}

  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context,
                                 const v1::PlanRequest* request, v1::PlanReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (absl::Status s = desk_.CheckAdmin(Authorization(*context)); !s.ok()) {
      reactor->Finish(ToGrpc(s));
      return reactor;
    }
    // Context, reactor and reply live until Finish.
    desk_.Plan(*request, [reactor, reply](absl::StatusOr<v1::PlanReply> made) {
      if (made.ok()) *reply = *std::move(made);
      reactor->Finish(ToGrpc(made.status()));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* ApplyPlan(grpc::CallbackServerContext* context,
                                      const v1::ApplyPlanRequest* request,
                                      v1::ApplyPlanReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (absl::Status s = desk_.CheckAdmin(Authorization(*context)); !s.ok()) {
      reactor->Finish(ToGrpc(s));
      return reactor;
    }
    desk_.Apply(*request, [reactor, reply](absl::StatusOr<v1::ApplyPlanReply> applied) {
      if (applied.ok()) *reply = *std::move(applied);
      reactor->Finish(ToGrpc(applied.status()));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest*,
                                    v1::GetPlanReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Status allowed = desk_.CheckAdmin(Authorization(*context));
    if (allowed.ok()) *reply = desk_.Running();
    reactor->Finish(ToGrpc(allowed));
    return reactor;
  }

 private:
  PlanningDesk& desk_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakePlanningService(PlanningDesk& desk) {
  return std::make_unique<PlanningService>(desk);
}

}  // namespace tessera::coordinator
