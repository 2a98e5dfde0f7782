// What a load report says of a checkpoint and of its tensors, whoever loads them. Needs no LibTorch.
#pragma once

#include <string>

#include <halfbyte/load_report.h>

#include "loader/dtype_choice.h"
#include "loader/files/checkpoint.h"

namespace halfbyte {

// The lines of a report that hold for the whole checkpoint.
LoadReport begin_report(const files::Checkpoint& checkpoint, const DtypePolicy& policy);

// The name that a tied one stands for, or the name itself.
std::string owner_of(const files::Checkpoint& checkpoint, const std::string& name);
// Through ties. Errors: kCorrupt when there is no such tensor.
const files::TensorRecord& record_of(const files::Checkpoint& checkpoint, const std::string& name);

// Before quantisation; where no file says it, what it is stored in.
Dtype recorded_dtype(const files::TensorRecord& record);
// A dtype, or a scheme with its group size ("sym_int4 g64").
std::string storage_of(const files::TensorRecord& record);
// Where its bytes are computed: a word for the report, or nothing.
std::string translation_note(const files::Checkpoint& checkpoint, const files::TensorRecord& record);

LoadedTensor line_of(const std::string& name, const files::TensorRecord& record);
// Of a packed one that stays packed, on the CPU.
LoadedTensor packed_line(const files::Checkpoint& checkpoint, const DtypeChoice& choice, const std::string& name);
// Of a buffer that the model computes: its line, and the dtype that it has.
Dtype note_derived_buffer(const files::Checkpoint& checkpoint, const DtypeChoice& choice, const std::string& name,
                          LoadReport& report);
// Stored buffers that the model derives by itself: in the report, not in the model.
void note_unused_buffers(const files::Checkpoint& checkpoint, LoadReport& report);
// That it answers to text alone, of a model that sees or hears too.
void note_text_part(const models::ModelConfig& config, LoadReport& report);
// What becomes of products in a dtype that this CPU does not multiply.
void note_products(const DtypePolicy& policy, LoadReport& report);

}  // namespace halfbyte
