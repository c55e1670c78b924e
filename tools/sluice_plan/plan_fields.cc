#include "tools/sluice_plan/plan_fields.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tools/sluice_plan/verdict.h"

namespace sluice {
namespace {

// Prints 0.1 as 0.1, with an error of at most 1e-12 when it is parsed again.
std::string CsvCell(double value) {
  return absl::StrFormat("%.12g", value);
}
std::string CsvCell(bool value) {
  return value ? "true" : "false";
}
std::string CsvCell(std::monostate) {
  return "";
}
std::string CsvCell(const std::string& value) {
  if (value.find_first_of(",\"\n") == std::string::npos) return value;
  return absl::StrCat("\"", absl::StrReplaceAll(value, {{"\"", "\"\""}}), "\"");
}

void SetJson(google::protobuf::Value& field, double value) {
  field.set_number_value(value);
}
void SetJson(google::protobuf::Value& field, bool value) {
  field.set_bool_value(value);
}
void SetJson(google::protobuf::Value& field, const std::string& value) {
  field.set_string_value(value);
}
void SetJson(google::protobuf::Value& field, std::monostate) {
  field.set_null_value(google::protobuf::NULL_VALUE);
}

}  // namespace

std::vector<std::pair<std::string, PlanValue>> PlanFields(const Sizing& sizing) {
  const LinkProfile& profile = sizing.read.profile;
  const SlotPlan& slots = sizing.slots;
  const CollapseEstimate& collapse = sizing.collapse;
  const auto count = [](int64_t value) { return PlanValue(static_cast<double>(value)); };
  const auto seconds = [](absl::Duration value) { return PlanValue(absl::ToDoubleSeconds(value)); };
  return {
      {"workers", count(sizing.read.workers)},
      {"sru_bytes", count(sizing.sru_bytes)},
      {"capacity_bps", 8 * profile.capacity_bytes_per_second},
      {"buffer_bytes", count(BufferBudgetBytes(profile))},
      {"rtt_s", seconds(profile.propagation_rtt)},
      {"timer_granularity_s", seconds(profile.timer_granularity)},
      {"rto_min_s", seconds(sizing.read.unscheduled.rto_min)},
      {"sru_packets", count(slots.sru_packets)},
      {"wnd_max", count(slots.wnd_max_packets)},
      {"n", count(slots.batch_workers)},
      {"batches", count(slots.batches)},
      {"sru_time_s", seconds(slots.sru_time)},
      {"slot_s", seconds(slots.slot)},
      {"block_time_s", sizing.applicable ? seconds(slots.block_time) : PlanValue()},
      {"goodput_bps", slots.goodput_bps},
      {"rolling_goodput_bps", sizing.rolling_goodput_bps},
      {"grants_goodput_bps", sizing.grants_goodput_bps},
      {"grants_link_share", sizing.grants_link_share},
      {"unscheduled_goodput_bps",
       sizing.unscheduled_goodput_bps ? PlanValue(*sizing.unscheduled_goodput_bps) : PlanValue()},
      {"unscheduled_reason", WhyUnknown(sizing)},
      {"think_s", seconds(sizing.read.think_time)},
      {"tunnel_goodput_bps", sizing.tunnel_goodput_bps},
      {"collapse_goodput_bps", collapse.goodput_bps},
      {"collapse_printed_goodput_bps", collapse.printed_goodput_bps},
      {"collapse_block_timeout_probability", collapse.block_timeout_probability},
      {"collapse_timeout_probability", collapse.timeout_probability},
      {"collapse_window", collapse.window_packets},
      {"collapse_rounds", count(collapse.rounds)},
      {"collapse_loss_probability", collapse.loss_probability},
      {"collapse_full_loss_probability", collapse.full_loss_probability},
      {"collapse_full_loss_bound", collapse.full_loss_bound},
      {"collapse_lack_of_acks_probability", collapse.lack_of_acks_probability},
      {"verdict", std::string(NeedName(JudgeNeed(sizing)))},
      {"applicable", sizing.applicable},
      {"reason", sizing.reason},
  };
}

std::string PlanJson(const Sizing& sizing) {
  google::protobuf::Struct object;
  for (const auto& [key, value] : PlanFields(sizing)) {
    const bool empty_reason = key.ends_with("reason") && std::get<std::string>(value).empty();
    if (empty_reason) continue;
    std::visit([&field = (*object.mutable_fields())[key]](const auto& held) { SetJson(field, held); }, value);
  }
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string json;
  // Only malformed Any messages and infinite numbers fail, and neither occurs here.
  (void)google::protobuf::util::MessageToJsonString(object, &json, options);
  return json;
}

std::string PlanCsv(const std::vector<SweepRow>& rows) {
  std::string csv;
  const auto append = [&csv](const std::string& cell) { absl::StrAppend(&csv, cell, ","); };
  const auto end_line = [&csv] { csv.back() = '\n'; };
  for (const auto& [key, value] : PlanFields(Sizing())) append(key);
  end_line();
  for (const SweepRow& row : rows) {
    for (const auto& [key, value] : PlanFields(row.sizing)) {
      append(std::visit([](const auto& held) { return CsvCell(held); }, value));
    }
    end_line();
  }
  return csv;
}

}  // namespace sluice
