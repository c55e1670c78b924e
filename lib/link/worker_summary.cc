#include "lib/link/worker_summary.h"

#include <algorithm>
#include <cstddef>

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

namespace sluice {
namespace {

using google::protobuf::Struct;

constexpr size_t kWorst = 20;

absl::Duration Known(absl::Duration time) {
  return time == absl::InfiniteDuration() ? absl::ZeroDuration() : time;
}

// Orders equal times by address, so that rows keep their places.
bool IsWorse(const WorkerSummary& one, const WorkerSummary& other) {
  if (one.faults.empty() != other.faults.empty()) return other.faults.empty();
  const absl::Duration one_takes = Known(one.ready) + Known(one.transfer);
  const absl::Duration other_takes = Known(other.ready) + Known(other.transfer);
  return one_takes != other_takes ? one_takes > other_takes : one.address < other.address;
}

void SetCount(Struct& object, const char* key, int64_t count) {
  (*object.mutable_fields())[key].set_number_value(static_cast<double>(count));
}

void SetSeconds(Struct& object, const char* key, absl::Duration time) {
  if (time == absl::InfiniteDuration()) return;
  (*object.mutable_fields())[key].set_number_value(absl::ToDoubleSeconds(time));
}

Struct ToStruct(const WorkerSummary& worker) {
  Struct object;
  (*object.mutable_fields())["address"].set_string_value(worker.address);
  SetCount(object, "responses", worker.responses);
  SetSeconds(object, "ready_seconds", worker.ready);
  SetSeconds(object, "transfer_seconds", worker.transfer);
  SetSeconds(object, "rtt_seconds", worker.rtt);
  SetCount(object, "losses", worker.losses);
  SetCount(object, "rtos", worker.rtos);
  SetCount(object, "in_flight", worker.in_flight);
  auto& faults = *(*object.mutable_fields())["faults"].mutable_list_value();
  for (const std::string& fault : worker.faults) faults.add_values()->set_string_value(fault);
  return object;
}

}  // namespace

std::string WorstWorkersJson(std::vector<WorkerSummary> workers) {
  const size_t shown = std::min(workers.size(), kWorst);
  std::partial_sort(workers.begin(), workers.begin() + static_cast<ptrdiff_t>(shown), workers.end(), IsWorse);
  Struct object;
  auto& list = *(*object.mutable_fields())["workers"].mutable_list_value();
  for (size_t i = 0; i < shown; ++i) *list.add_values()->mutable_struct_value() = ToStruct(workers[i]);
  SetCount(object, "total", static_cast<int64_t>(workers.size()));
  std::string json;
  // Only malformed Any messages and infinite numbers fail, and neither occurs here.
  (void)google::protobuf::util::MessageToJsonString(object, &json);
  return json;
}

}  // namespace sluice
