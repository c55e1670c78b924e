#include "tools/sluice_plan/plan_json.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

namespace sluice {

std::string PlanJson(const Sizing& sizing) {
  google::protobuf::Struct object;
  auto& fields = *object.mutable_fields();
  const auto set = [&fields](const char* key, double value) { fields[key].set_number_value(value); };
  const auto set_count = [&set](const char* key, int64_t value) { set(key, static_cast<double>(value)); };

  set_count("workers", sizing.workers);
  set_count("sru_bytes", sizing.sru_bytes);
  set_count("sru_packets", sizing.slots.sru_packets);
  set_count("wnd_max", sizing.slots.wnd_max_packets);
  set_count("n", sizing.slots.batch_workers);
  set_count("batches", sizing.slots.batches);
  set("sru_time_s", absl::ToDoubleSeconds(sizing.slots.sru_time));
  set("slot_s", absl::ToDoubleSeconds(sizing.slots.slot));
  set("goodput_bps", sizing.slots.goodput_bps);
  set("rolling_goodput_bps", sizing.rolling_goodput_bps);
  set("collapse_goodput_bps", sizing.unscheduled.goodput_bps);
  set("collapse_timeout_probability", sizing.unscheduled.timeout_probability);
  fields["applicable"].set_bool_value(sizing.applicable);
  if (sizing.applicable) {
    set("block_time_s", absl::ToDoubleSeconds(sizing.slots.block_time));
  } else {
    fields["block_time_s"].set_null_value(google::protobuf::NULL_VALUE);
    fields["reason"].set_string_value(sizing.reason);
  }

  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string json;
  // Only malformed Any messages and infinite numbers fail, and there are none.
  (void)google::protobuf::util::MessageToJsonString(object, &json, options);
  return json;
}

}  // namespace sluice
