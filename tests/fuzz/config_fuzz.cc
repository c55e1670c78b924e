// Loads arbitrary configs of the aggregator, the worker or sluice-link the way the programs do. A config that parses
// must print, and parse again to the same config. A config that does not parse must change nothing. An accepted config
// must respect the bounds that the programs rely on.
//
// The first letter selects the program and the syntax. With `a`, `w` or `l` the rest is the file. With `A`, `W` or `L`
// the rest is lines "field=value" (a field of a nested message is "link.capacity"), so that more inputs get past the
// syntax of JSON.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include "sluice/plan.h"
#include "sluice/v1/config.pb.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "aggregator/aggregator_config.h"
#include "lib/cli/config_file.h"
#include "lib/net/clock.h"
#include "lib/net/host_port.h"
#include "lib/scheduling/budget.h"
#include "link/link_daemon_config.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/worker_config.h"

namespace sluice {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Sets a field that is not a message, or appends to it if it is repeated. Ignores unknown names.
void SetField(Message& message, absl::string_view name, const std::string& value) {
  const std::pair<std::string, absl::string_view> path = absl::StrSplit(name, absl::MaxSplits('.', 1));
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(path.first);
  if (field == nullptr) return;
  const auto* const reflection = message.GetReflection();
  int64_t integer = 0;
  double real = 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SetField(*reflection->MutableMessage(&message, field), path.second, value);
    case FieldDescriptor::CPPTYPE_STRING:
      if (field->is_repeated()) return reflection->AddString(&message, field, value);
      return reflection->SetString(&message, field, value);
    case FieldDescriptor::CPPTYPE_INT64:
      if (absl::SimpleAtoi(value, &integer)) reflection->SetInt64(&message, field, integer);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      if (absl::SimpleAtoi(value, &integer)) reflection->AddUInt32(&message, field, static_cast<uint32_t>(integer));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (absl::SimpleAtod(value, &real)) reflection->SetDouble(&message, field, real);
      return;
    default:
      return reflection->SetBool(&message, field, value == "true");
  }
}

void Print(const Message& config, std::string& text) {
  FUZZ_CHECK(google::protobuf::util::MessageToJsonString(config, &text).ok());
}

// Returns false if the input is not a config.
bool Load(bool as_lines, absl::string_view input, Message& config) {
  std::string text(input);
  if (as_lines) {
    const std::unique_ptr<Message> written(config.New());
    for (char& c : text) c = static_cast<char>(c & 0x7f);  // protobuf strings are UTF-8
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      const std::pair<absl::string_view, std::string> field = absl::StrSplit(line, absl::MaxSplits('=', 1));
      SetField(*written, field.first, field.second);
    }
    Print(*written, text);
  }
  const absl::Status parsed = ParseConfig(text, config);
  if (!parsed.ok()) {
    FUZZ_CHECK(absl::IsInvalidArgument(parsed) && config.ByteSizeLong() == 0);
    return false;
  }
  std::string printed;
  Print(config, printed);
  const std::unique_ptr<Message> again(config.New());
  FUZZ_CHECK(ParseConfig(printed, *again).ok());
  FUZZ_CHECK(again->SerializeAsString() == config.SerializeAsString());
  return true;
}

void CheckRefusal(const absl::Status& status) {
  FUZZ_CHECK(absl::IsInvalidArgument(status) && !status.message().empty());
}

// Checks that every function of the model is defined, and that no time overflows.
void CheckProfile(const LinkProfile& profile, int64_t budget_bytes) {
  FUZZ_CHECK(profile.Validate().ok());
  FUZZ_CHECK(BufferBudgetBytes(profile) >= 1);
  FUZZ_CHECK(budget_bytes >= 1);
  FUZZ_CHECK(DrainTime(profile, budget_bytes) > std::chrono::nanoseconds::zero());
  const SlotPlan plan = PlanSlotsAtLeastOne(profile, 1'000'000, 100);
  FUZZ_CHECK(plan.batch_workers >= 1 && plan.batches >= 1 && plan.block_time > absl::ZeroDuration());
}

bool IsTime(absl::Duration time) {
  return time >= absl::ZeroDuration() && time < absl::InfiniteDuration();
}

void CheckAdmin(const std::string& admin) {
  FUZZ_CHECK(admin.empty() || ParseHostPort(admin).ok());
}

void CheckAggregator(const v1::AggregatorConfig& config) {
  const absl::StatusOr<AggregatorOptions> options = ParseAggregatorConfig(config);
  if (!options.ok()) return CheckRefusal(options.status());
  CheckAdmin(options->admin);
  FUZZ_CHECK(!options->rpc_server.listen.empty());
  FUZZ_CHECK(Link::Validate(options->link).ok());
  const ScheduleOptions& schedule = options->link.schedule;
  FUZZ_CHECK(schedule.Validate().ok());
  CheckProfile(schedule.profile, schedule.budget_bytes.value_or(BufferBudgetBytes(schedule.profile)));
  FUZZ_CHECK(!options->workers.fixed.empty() || options->workers.open.has_value());
  FUZZ_CHECK(options->read_memory_bytes >= 1);
  FUZZ_CHECK(IsTime(options->reload_interval) && IsTime(options->rpc_server.drain_timeout) &&
             IsTime(options->rpc_server.drain_delay));
  FUZZ_CHECK(DeadlineAfter(options->reader.sru_timeout) > TimePoint());
  if (options->mid_level.has_value()) {
    FUZZ_CHECK(options->mid_level->cache_bytes >= 1 && IsTime(options->mid_level->deadline_reserve));
  }
}

void CheckWorker(const v1::WorkerConfig& config) {
  const absl::StatusOr<WorkerOptions> options = ParseWorkerConfig(config);
  if (!options.ok()) return CheckRefusal(options.status());
  CheckAdmin(options->admin);
  FUZZ_CHECK(!options->data.empty());
  FUZZ_CHECK(options->rpc_server.listen.size() == static_cast<size_t>(config.listen_size()));
  FUZZ_CHECK(ThinkTime::Validate(options->think_time).ok());
  for (const absl::Duration time : {options->think_time.usual, options->think_time.tail,
                                    options->rpc_server.drain_timeout, options->rpc_server.drain_delay}) {
    FUZZ_CHECK(time >= absl::ZeroDuration() && time <= absl::Hours(1));
  }
}

void CheckLinkDaemon(const v1::LinkDaemonConfig& config) {
  const absl::StatusOr<LinkDaemonOptions> options = ParseLinkDaemonConfig(config);
  if (!options.ok()) return CheckRefusal(options.status());
  CheckAdmin(options->admin);
  const LeaseServer::Options& server = options->server;
  FUZZ_CHECK(!server.socket.empty() && server.socket_mode > 0 && server.socket_mode <= 0777);
  FUZZ_CHECK(LinkDivider::Validate(server.shares).ok());
  FUZZ_CHECK(server.shares.lease_time >= std::chrono::milliseconds(20));
  FUZZ_CHECK(server.shares.start_grace > server.shares.lease_time);
  CheckProfile(options->profile, server.shares.budget_bytes);
}

template <class Config>
void Check(bool as_lines, absl::string_view input, void (*check)(const Config&)) {
  Config config;
  if (Load(as_lines, input, config)) check(config);
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  FuzzInput input(data, size);
  const uint8_t letter = input.Byte();
  const absl::string_view rest = input.Take(size);
  switch (letter) {
    case 'a':
    case 'A':
      Check<v1::AggregatorConfig>(letter == 'A', rest, &CheckAggregator);
      break;
    case 'w':
    case 'W':
      Check<v1::WorkerConfig>(letter == 'W', rest, &CheckWorker);
      break;
    case 'l':
    case 'L':
      Check<v1::LinkDaemonConfig>(letter == 'L', rest, &CheckLinkDaemon);
      break;
    default:
      break;
  }
  return 0;
}
