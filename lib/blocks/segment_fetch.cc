#include "lib/blocks/segment_fetch.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "sluice/v1/sru_service.pb.h"

#include "absl/strings/str_cat.h"
#include "lib/rpc/clock.h"
#include "lib/rpc/messages.h"
#include "lib/stripe/crc32c.h"
#include "lib/stripe/stripe_store.h"
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

// What an answer says is missing, as bytes of the segment: it answers `whole`, which begins at `in_stripe` of its
// stripe.
absl::StatusOr<ByteRanges> MissingIn(const v1::ReadSruResponse& response, const ByteRange& whole, uint64_t in_stripe) {
  ByteRanges ranges;
  uint64_t last_end = whole.begin;
  for (const v1::MissingSruRange& missing : response.missing()) {
    const uint64_t begin = missing.offset() - in_stripe + whole.begin;  // too large where it is before the range
    if (begin < last_end || begin >= whole.end || missing.length() == 0 || missing.length() > whole.end - begin) {
      return absl::DataLossError(absl::StrCat("says that ", missing.length(), " bytes from ", missing.offset(),
                                              " are missing, which is not within what was asked for"));
    }
    last_end = begin + missing.length();
    ranges.push_back({begin, last_end});
  }
  return ranges;
}

absl::Status WhyMissing(const v1::MissingSruRange& missing) {
  return missing.data_loss() ? absl::DataLossError(missing.reason()) : absl::UnavailableError(missing.reason());
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
  CallGroup::Handlers handlers{
      .on_answer =
          [fetch](CallGroup& group, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer) {
            return fetch->OnAnswer(group, tag, std::move(answer));
          },
      .on_end = [fetch] { fetch->OnEnd(); },
      .on_message = [fetch](CallGroup&, size_t tag, grpc::ByteBuffer& message) { fetch->OnMessage(tag, message); }};
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
  request.set_allow_partial(spec_.allow_partial);
  request.set_manifest_crc32c(spec_.layout->ManifestCrc32c());
  ranges_.push_back(range);
  return {.channels = &core_.channels(),
          .worker = WorkerFor(range),
          .method = "/sluice.v1.SruService/ReadSru",
          .server_streaming = range.length > kSruMessageBytes,  // else there is one message
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

void SegmentFetch::OnMessage(size_t tag, grpc::ByteBuffer& message) {
  absl::MutexLock lock(&mutex_);
  messages_[tag].push_back(std::move(message));
}

absl::Status SegmentFetch::OnAnswer(CallGroup& group, size_t tag, absl::StatusOr<grpc::ByteBuffer> answer) {
  Range range;
  std::vector<grpc::ByteBuffer> messages;
  {
    absl::MutexLock lock(&mutex_);
    range = ranges_[tag];
    if (const auto streamed = messages_.extract(tag)) messages = std::move(streamed.mapped());
  }
  if (answer.ok() && messages.empty()) messages.push_back(*std::move(answer));
  absl::Status why;
  const absl::StatusOr<ByteRanges> missing = answer.ok() ? Store(range, messages, why) : answer.status();
  if (!missing.ok()) {
    OnRangeFailed(group, range, missing.status(), /*whole_sru=*/false);
    return missing.status();
  }
  if (!missing->empty()) {
    OnPartialAnswer(group, range, *missing, why);
    return absl::OkStatus();
  }
  const absl::Status checked = OnRangeStored(range);
  if (!checked.ok()) OnRangeFailed(group, range, checked, /*whole_sru=*/true);
  return checked;
}

// Returns what no attempt has brought yet, and why this one has not.
absl::StatusOr<ByteRanges> SegmentFetch::Store(const Range& range, std::vector<grpc::ByteBuffer>& messages,
                                               absl::Status& why) {
  v1::ReadSruResponse response;
  for (grpc::ByteBuffer& message : messages) {
    v1::ReadSruResponse piece;
    if (absl::Status parsed = Parse(message, piece); !parsed.ok()) return parsed;
    response.mutable_data()->append(piece.data());
    response.mutable_missing()->MergeFrom(piece.missing());
  }
  if (response.data().size() != range.length) {
    return absl::DataLossError(
        absl::StrCat("answered with ", response.data().size(), " bytes; ", range.length, " were asked for"));
  }
  const uint64_t begin = OffsetInSegment(range.sru) + range.offset;
  const uint64_t in_stripe = spec_.layout->OffsetInStripe(spec_.first_sru + range.sru) + range.offset;
  const ByteRange whole = {begin, begin + range.length};
  const absl::StatusOr<ByteRanges> missing = MissingIn(response, whole, in_stripe);
  if (!missing.ok()) return missing.status();
  if (!missing->empty() && !spec_.allow_partial) {
    return absl::DataLossError("answered in part, which nobody has asked for");
  }
  for (const ByteRange& part : Without(whole, *missing)) {
    std::memcpy(data_.get() + part.begin, response.data().data() + (part.begin - begin), part.end - part.begin);
  }
  if (!missing->empty()) why = WhyMissing(response.missing(0));
  return range.missing.has_value() ? Intersect(*range.missing, *missing) : *missing;
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
  bool verifiable = false;
  {
    absl::MutexLock lock(&mutex_);
    Sru& sru = srus_[range.sru];
    sru.from_replica |= ReplicaFor(range) > 0;
    if (--sru.open_ranges > 0 || sru.settled) return absl::OkStatus();
    sru.settled = sru.partial;
    verifiable = !sru.partial;
  }
  if (verifiable) {
    if (absl::Status checked = CheckSru(range.sru); !checked.ok()) return checked;
    absl::MutexLock lock(&mutex_);
    srus_[range.sru].settled = true;
  }
  on_progress_();
  return absl::OkStatus();
}

// Who answers in part has tried what it could, so the same worker is not asked again.
void SegmentFetch::OnPartialAnswer(CallGroup& group, Range range, const ByteRanges& missing, const absl::Status& why) {
  std::optional<GroupCall> retry;
  {
    absl::MutexLock lock(&mutex_);
    if (srus_[range.sru].settled) return;
    range.missing = missing;
    srus_[range.sru].from_replica |= ReplicaFor(range) > 0;
    if (spec_.layout->Replicas() > 1 && MayRetry(range, why)) {
      ++range.attempt;
      retry = CallFor(range);
    } else {
      LeaveGaps(range, Describe(range, why));
    }
  }
  if (retry.has_value()) {
    group.Add(*std::move(retry));
  } else {
    on_progress_();
  }
}

// Ranges of an SRU that does not match may come from different replicas, since each was tried again by itself. Then the
// attempt is that of the SRU, so that no replica is left out.
void SegmentFetch::OnRangeFailed(CallGroup& group, Range range, const absl::Status& why, bool whole_sru) {
  std::vector<GroupCall> retries;
  bool failed = false;
  {
    absl::MutexLock lock(&mutex_);
    if (srus_[range.sru].settled) return;
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
  if (!spec_.allow_partial || absl::IsCancelled(why)) return status_.Update(std::move(reason));
  if (range.missing.has_value()) return LeaveGaps(range, reason);
  // What else has come of the SRU cannot be verified without it.
  srus_[range.sru].settled = true;
  AddGap({OffsetInSegment(range.sru), OffsetInSegment(range.sru + 1)}, reason);
}

void SegmentFetch::LeaveGaps(const Range& range, const absl::Status& reason) {
  Sru& sru = srus_[range.sru];
  sru.partial = true;
  for (const ByteRange& missing : *range.missing) AddGap(missing, reason);
  sru.settled = --sru.open_ranges == 0;
}

void SegmentFetch::AddGap(const ByteRange& bytes, const absl::Status& reason) {
  gaps_.erase(gaps_.lower_bound(bytes.begin), gaps_.lower_bound(bytes.end));
  gaps_[bytes.begin] = {.end = bytes.end, .why = reason};
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
    const uint64_t arrived_bytes = ArrivedBytes();
    core_.metrics().CountBlock(OutcomeOf(status_, arrived_bytes == bytes_));
    core_.metrics().ObserveBlock(absl::FromChrono(Now() - started_),
                                 static_cast<double>(arrived_bytes) / static_cast<double>(bytes_));
  }
  on_progress_();
}

uint64_t SegmentFetch::ArrivedBytes() const {
  uint64_t bytes = 0;
  for (uint64_t sru = 0; sru < srus_.size(); ++sru) {
    if (srus_[sru].settled) bytes += SruLength(sru);
  }
  for (const auto& [begin, gap] : gaps_) {
    if (srus_[begin / spec_.layout->SruBytes()].settled) bytes -= gap.end - begin;
  }
  return bytes;
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
    const uint64_t ready = OffsetInSegment(ReadySrus());
    const auto gap = gaps_.lower_bound(taken_bytes_);
    const uint64_t next_gap = gap == gaps_.end() ? bytes_ : gap->first;
    begin = taken_bytes_;
    end = std::min(ready, next_gap);
    if (begin == next_gap && begin < ready) return TakeMissing(ready);
    const bool more_to_come = ready < bytes_ && ready <= next_gap;
    if (end <= begin || (more_to_come && end - begin < kMinChunkBytes)) return std::nullopt;
    end = std::min(end, begin + kMaxChunkBytes);
    AdvanceTo(end, /*arrived=*/true);
  }
  return ReadChunk{.offset = spec_.layout->SruOffset(spec_.first_sru) + begin,
                   .data = std::string(data_.get() + begin, end - begin)};
}

// One past the run of settled SRUs that begins with the first one not taken.
uint64_t SegmentFetch::ReadySrus() const {
  uint64_t ready = taken_srus_;
  while (ready < srus_.size() && srus_[ready].settled) ++ready;
  return ready;
}

// Gaps that follow each other are one, where they are of one kind.
ReadPart SegmentFetch::TakeMissing(uint64_t ready) {
  const auto first = gaps_.find(taken_bytes_);
  uint64_t end = first->second.end;
  for (auto gap = std::next(first); gap != gaps_.end() && gap->first == end && end < ready; ++gap) {
    if (gap->second.why.code() != first->second.why.code()) break;
    end = gap->second.end;
  }
  const uint64_t begin = taken_bytes_;
  AdvanceTo(end, /*arrived=*/false);
  return MissingBytes{.offset = spec_.layout->SruOffset(spec_.first_sru) + begin,
                      .length = end - begin,
                      .reason = std::string(first->second.why.message()),
                      .code = first->second.why.code()};
}

void SegmentFetch::AdvanceTo(uint64_t offset_in_segment, bool arrived) {
  while (taken_bytes_ < offset_in_segment) {
    const uint64_t sru_end = OffsetInSegment(taken_srus_ + 1);
    const uint64_t to = std::min(offset_in_segment, sru_end);
    const WorkerKind kind = srus_[taken_srus_].from_replica ? WorkerKind::kReplica : WorkerKind::kPrimary;
    if (arrived) core_.metrics().AddGoodput(to - taken_bytes_, kind);
    taken_bytes_ = to;
    if (to == sru_end) ++taken_srus_;
  }
}

}  // namespace sluice
