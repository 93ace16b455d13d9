// The gRPC door of planning (proto/planning.proto): the twin of /v1/plan.
//
// Thread rule: thread-safe; never blocks. `desk` must outlive the service.
#pragma once

#include <memory>

#include "coordinator/deployment/planning_desk.h"

namespace grpc {
class Service;
}

namespace tessera::coordinator {

std::unique_ptr<grpc::Service> MakePlanningService(PlanningDesk& desk);

}  // namespace tessera::coordinator
