// The group of ranks that this process was started for: by `halfbyte launch`, or by another launcher over a network.
#pragma once

#include <memory>
#include <string>

#include <halfbyte/dtype.h>
#include <halfbyte/group.h>
#include <halfbyte/leading.h>

namespace halfbyte::cli {

// Joined at the first call, by memory that `halfbyte launch` made, or by MASTER_ADDR and MASTER_PORT beside a
// launcher's rank and count; null: it was started alone. Another rank than the first of a network prints no results
// from then on. Errors: kInvalidArgument, those of join_shared_memory_file() and join_network(); UsageError.
std::shared_ptr<Group> launched_group();
// At this process's end, which does without destructors: what it said last is not to be lost to the others.
void leave_launched_group();
bool is_first_rank();           // or it was started alone
Dtype launched_reduce_dtype();  // of sums of layers between machines. Errors: UsageError for a dtype that it is not
int launched_pipeline();        // stages of layers that its ranks are in; 1 where it was started alone

// Of verbs that rank 0 leads: whether this is another of its ranks, of which nothing is joined for the answer.
bool is_later_rank();
LeadOptions launched_lead();  // as often as who started the ranks lets them wait for each other
// Errors: UsageError naming an option that ranks do not have. Nothing where it was started alone.
void refuse_for_ranks(const std::string& option, const std::string& why);

// For verbs that no group of ranks runs. Errors: UsageError where this process is one of several.
void refuse_ranks(const std::string& verb);

}  // namespace halfbyte::cli
