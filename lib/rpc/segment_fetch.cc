#include "lib/rpc/segment_fetch.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/str_cat.h"
#include "lib/rpc/clock.h"
#include "lib/rpc/messages.h"
#include "lib/stripe/crc32c.h"
#include "lib/telemetry/aggregator_metrics.h"

namespace sluice {
namespace {

// Chunks are what the consumer passes on: large enough that the cost of a message does not show, small enough that the
// first bytes of a block are on their way while the last ones still arrive.
constexpr uint64_t kMinChunkBytes = 64 << 10;
constexpr uint64_t kMaxChunkBytes = 1 << 20;

// Asking the same worker again may help. Another replica is always worth the question.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsDataLoss(status) ||
         absl::IsResourceExhausted(status);
}

BlockOutcome OutcomeOf(const absl::Status& status, bool complete) {
  if (absl::IsDeadlineExceeded(status)) return BlockOutcome::kDeadline;
  if (absl::IsCancelled(status)) return BlockOutcome::kCancelled;
  if (!status.ok()) return BlockOutcome::kFailed;
  return complete ? BlockOutcome::kComplete : BlockOutcome::kPartial;
}

}  // namespace

absl::StatusOr<std::shared_ptr<SegmentFetch>> SegmentFetch::Start(ReaderCore& core, Spec spec,
                                                                  std::function<void()> on_progress) {
  std::shared_ptr<SegmentFetch> fetch(new SegmentFetch(core, std::move(spec), std::move(on_progress)));
  CallGroup::Handlers handlers{.on_answer =
                                   [fetch](CallGroup& group, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer) {
                                     return fetch->OnAnswer(group, tag, std::move(answer));
                                   },
                               .on_end = [fetch] { fetch->OnEnd(); }};
  auto group = core.fan_out().StartGroup(fetch->PlanCalls(), fetch->spec_.deadline, std::move(handlers));
  if (!group.ok()) return group.status();
  absl::MutexLock lock(&fetch->mutex_);
  // The two hold each other until the group has ended, which may have been before this line.
  if (!fetch->ended_) fetch->group_ = *std::move(group);
  return fetch;
}

SegmentFetch::SegmentFetch(ReaderCore& core, Spec spec, std::function<void()> on_progress)
    : core_(core),
      spec_(std::move(spec)),
      on_progress_(std::move(on_progress)),
      started_(Now()),
      range_bytes_(core.RangeBytesFor(spec_.layout->SruBytes())),
      bytes_(OffsetInSegment(spec_.srus)),
      data_(std::make_unique_for_overwrite<char[]>(bytes_)),
      srus_(spec_.srus) {}

std::vector<GroupCall> SegmentFetch::PlanCalls() {
  absl::MutexLock lock(&mutex_);
  std::vector<GroupCall> calls;
  calls.reserve(srus_.size());
  for (uint64_t sru = 0; sru < srus_.size(); ++sru) {
    const std::vector<Range> ranges = RangesOf(sru, /*attempt=*/0);
    srus_[sru].open_ranges = static_cast<int>(ranges.size());
    for (const Range& range : ranges) calls.push_back(CallFor(range));
  }
  return calls;
}

std::vector<SegmentFetch::Range> SegmentFetch::RangesOf(uint64_t sru, int attempt) const {
  std::vector<Range> ranges;
  const uint64_t length = SruLength(sru);
  for (uint64_t offset = 0; offset < length; offset += range_bytes_) {
    const uint64_t bytes = std::min<uint64_t>(range_bytes_, length - offset);
    ranges.push_back({.sru = sru, .offset = offset, .length = static_cast<uint32_t>(bytes), .attempt = attempt});
  }
  return ranges;
}

GroupCall SegmentFetch::CallFor(Range range) {
  v1::ReadSruRequest request;
  request.set_file(spec_.file);
  request.set_worker(WorkerFor(range));
  request.set_replica(ReplicaFor(range));
  request.set_offset(spec_.layout->OffsetInStripe(spec_.first_sru + range.sru) + range.offset);
  request.set_length(range.length);
  ranges_.push_back(range);
  return {.channels = &core_.channels(),
          .worker = WorkerFor(range),
          .method = "/sluice.v1.SruService/ReadSru",
          .request = Serialize(request),
          .response_bytes = range.length,
          .timeout = core_.options().sru_timeout,
          .tag = ranges_.size() - 1,
          .retry = range.attempt > 0};
}

uint32_t SegmentFetch::ReplicaFor(const Range& range) const {
  return static_cast<uint32_t>(range.attempt) % spec_.layout->Replicas();
}

uint32_t SegmentFetch::WorkerFor(const Range& range) const {
  return spec_.layout->Worker(spec_.first_sru + range.sru, ReplicaFor(range));
}

uint64_t SegmentFetch::SruLength(uint64_t sru) const {
  return spec_.layout->SruLength(spec_.first_sru + sru);
}

uint64_t SegmentFetch::OffsetInSegment(uint64_t sru) const {
  const StripeLayout& layout = *spec_.layout;
  return std::min(layout.SruOffset(spec_.first_sru + sru), layout.FileBytes()) - layout.SruOffset(spec_.first_sru);
}

absl::Status SegmentFetch::OnAnswer(CallGroup& group, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer) {
  Range range;
  {
    absl::MutexLock lock(&mutex_);
    range = ranges_[tag];
  }
  const absl::Status stored = answer.ok() ? Store(range, *answer) : answer.status();
  if (!stored.ok()) {
    OnRangeFailed(group, range, stored, /*whole_sru=*/false);
    return stored;
  }
  const absl::Status checked = OnRangeStored(range);
  if (!checked.ok()) OnRangeFailed(group, range, checked, /*whole_sru=*/true);
  return checked;
}

absl::Status SegmentFetch::Store(const Range& range, grpc::ByteBuffer& answer) {
  v1::ReadSruResponse response;
  if (absl::Status parsed = Parse(answer, response); !parsed.ok()) return parsed;
  if (response.data().size() != range.length) {
    return absl::DataLossError(
        absl::StrCat("answered with ", response.data().size(), " bytes; ", range.length, " were asked for"));
  }
  std::memcpy(data_.get() + OffsetInSegment(range.sru) + range.offset, response.data().data(), range.length);
  return absl::OkStatus();
}

absl::Status SegmentFetch::CheckSru(uint64_t sru) const {
  const uint32_t expected = spec_.layout->SruCrc32c(spec_.first_sru + sru);
  const uint32_t found = Crc32c({data_.get() + OffsetInSegment(sru), SruLength(sru)});
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("CRC32C is ", absl::Hex(found, absl::kZeroPad8), "; the manifest has ",
                                          absl::Hex(expected, absl::kZeroPad8)));
}

// The error is that of the whole SRU: its ranges have all arrived, and together they are not what was striped.
absl::Status SegmentFetch::OnRangeStored(const Range& range) {
  {
    absl::MutexLock lock(&mutex_);
    Sru& sru = srus_[range.sru];
    sru.from_replica |= ReplicaFor(range) > 0;
    if (--sru.open_ranges > 0 || sru.state != SruState::kPending) return absl::OkStatus();
  }
  if (absl::Status checked = CheckSru(range.sru); !checked.ok()) return checked;
  {
    absl::MutexLock lock(&mutex_);
    srus_[range.sru].state = SruState::kVerified;
  }
  on_progress_();
  return absl::OkStatus();
}

// Ranges of an SRU that does not match may come from different replicas, since each was tried again by itself. Then the
// attempt is that of the SRU, so that no replica is left out.
void SegmentFetch::OnRangeFailed(CallGroup& group, Range range, const absl::Status& why, bool whole_sru) {
  std::vector<GroupCall> retries;
  bool failed = false;
  {
    absl::MutexLock lock(&mutex_);
    if (srus_[range.sru].state != SruState::kPending) return;
    if (whole_sru) range.attempt = srus_[range.sru].attempt;
    if (MayRetry(range, why)) {
      ++range.attempt;
      const std::vector<Range> again = whole_sru ? RangesOf(range.sru, range.attempt) : std::vector<Range>{range};
      if (whole_sru) srus_[range.sru] = {.open_ranges = static_cast<int>(again.size()), .attempt = range.attempt};
      for (const Range& retry : again) retries.push_back(CallFor(retry));
    } else {
      GiveUp(range, why);
      failed = !status_.ok();
    }
  }
  for (GroupCall& retry : retries) group.Add(std::move(retry));
  if (!retries.empty()) return;
  if (failed) group.Cancel();
  on_progress_();
}

bool SegmentFetch::MayRetry(const Range& range, const absl::Status& why) const {
  if (!status_.ok() || absl::IsCancelled(why) || Now() >= spec_.deadline) return false;
  if (range.attempt + 1 >= core_.options().attempts) return false;
  return spec_.layout->Replicas() > 1 || IsTransient(why);
}

void SegmentFetch::GiveUp(const Range& range, const absl::Status& why) {
  // The file may have been striped anew. Forgotten before the consumer can hear of the failure and read again.
  if (!absl::IsCancelled(why)) core_.ForgetLayout(spec_.file);
  absl::Status reason = Describe(range, why);
  if (spec_.allow_partial && !absl::IsCancelled(why)) {
    srus_[range.sru].state = SruState::kMissing;
    srus_[range.sru].missing_reason = std::string(reason.message());
  } else {
    status_.Update(std::move(reason));
  }
}

absl::Status SegmentFetch::Describe(const Range& range, const absl::Status& why) const {
  const uint32_t worker = WorkerFor(range);
  return absl::Status(ReaderCode(why.code()),
                      absl::StrCat("SRU ", spec_.first_sru + range.sru, " of file \"", spec_.file, "\": worker ",
                                   worker, " (", core_.channels().address(worker), "), attempt ", range.attempt + 1,
                                   ": ", absl::StatusCodeToString(why.code()), ": ", why.message()));
}

void SegmentFetch::OnEnd() {
  std::shared_ptr<CallGroup> group;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    group = std::move(group_);
    uint64_t verified_bytes = 0;
    for (uint64_t sru = 0; sru < srus_.size(); ++sru) {
      if (srus_[sru].state == SruState::kVerified) verified_bytes += SruLength(sru);
    }
    core_.metrics().CountBlock(OutcomeOf(status_, verified_bytes == bytes_));
    core_.metrics().ObserveBlock(absl::FromChrono(Now() - started_),
                                 static_cast<double>(verified_bytes) / static_cast<double>(bytes_));
  }
  on_progress_();
}

void SegmentFetch::Cancel() {
  std::shared_ptr<CallGroup> group;
  {
    absl::MutexLock lock(&mutex_);
    status_.Update(absl::CancelledError("the read was cancelled"));
    group = group_;
  }
  if (group) group->Cancel();
}

bool SegmentFetch::Drained() const {
  absl::MutexLock lock(&mutex_);
  return taken_srus_ == srus_.size();
}

absl::StatusOr<std::optional<ReadPart>> SegmentFetch::Take() {
  uint64_t begin = 0;
  uint64_t end = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    if (taken_srus_ == srus_.size()) return std::nullopt;
    if (srus_[taken_srus_].state == SruState::kMissing) return TakeMissing();
    const uint64_t ready = ReadySrus();
    begin = OffsetInSegment(taken_srus_) + taken_of_sru_;
    end = OffsetInSegment(ready);
    const bool more_to_come = ready < srus_.size() && srus_[ready].state == SruState::kPending;
    if (end <= begin || (more_to_come && end - begin < kMinChunkBytes)) return std::nullopt;
    end = std::min(end, begin + kMaxChunkBytes);
    AdvanceTo(end);
  }
  return ReadChunk{.offset = spec_.layout->SruOffset(spec_.first_sru) + begin,
                   .data = std::string(data_.get() + begin, end - begin)};
}

// One past the run of verified SRUs that begins with the first one not taken.
uint64_t SegmentFetch::ReadySrus() const {
  uint64_t ready = taken_srus_;
  while (ready < srus_.size() && srus_[ready].state == SruState::kVerified) ++ready;
  return ready;
}

ReadPart SegmentFetch::TakeMissing() {
  const uint64_t first = taken_srus_;
  while (taken_srus_ < srus_.size() && srus_[taken_srus_].state == SruState::kMissing) ++taken_srus_;
  return MissingBytes{.offset = spec_.layout->SruOffset(spec_.first_sru + first),
                      .length = OffsetInSegment(taken_srus_) - OffsetInSegment(first),
                      .reason = srus_[first].missing_reason};
}

void SegmentFetch::AdvanceTo(uint64_t offset_in_segment) {
  while (taken_srus_ < srus_.size()) {
    const uint64_t sru_begin = OffsetInSegment(taken_srus_);
    const uint64_t sru_end = OffsetInSegment(taken_srus_ + 1);
    const uint64_t taken_to = std::min(offset_in_segment, sru_end);
    core_.metrics().AddGoodput(taken_to - sru_begin - taken_of_sru_,
                               srus_[taken_srus_].from_replica ? WorkerKind::kReplica : WorkerKind::kPrimary);
    taken_of_sru_ = taken_to - sru_begin;
    if (taken_to < sru_end) return;
    ++taken_srus_;
    taken_of_sru_ = 0;
    if (taken_to == offset_in_segment) return;
  }
}

}  // namespace sluice
