#include "models/cpu/forward.h"

#include <algorithm>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "models/cpu/costs.h"
#include "models/cpu/experts.h"
#include "models/cpu/multiply.h"
#include "models/sessions/key_blocks.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::models::cpu {
namespace {

// By QueryKeyNorm; the first without norms.
constexpr quant::HeadNorm kHeadNorms[] = {quant::HeadNorm::kEachHead, quant::HeadNorm::kEachHead,
                                          quant::HeadNorm::kEachTurnedHead, quant::HeadNorm::kAllHeads};

// One pass over all layers. The residual sum of a layer's half waits as `delta` for the next norm, which adds it.
class Forward {
 public:
  Forward(Workspace& workspace, const PassInput& input, ModuleParts* modules)
      : work_(workspace),
        model_(workspace.model),
        rows_(input.rows),
        modules_(modules),
        hidden_(workspace.model.hidden_size),
        count_(static_cast<std::int64_t>(input.ids.size())) {
    set_rows();
    stream_ = work_.stream.floats(count_ * hidden_);
    base_ = stream_;
    if (input.stream)
      std::copy_n(input.stream, count_ * hidden_, stream_);
    else
      embed(input.ids);
  }

  void run(float* out) {
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      const auto scope = WorkScope::layer(model_.first_layer + static_cast<std::int64_t>(i));
      const auto work = [&] { layer(i); };
      modules_ ? modules_->run(i, work) : work();
      PassWatch::layer_done(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(model_.layers.size()));
    }
    normalise(model_.norm, nullptr, out);
  }

 private:
  // Where each row's tokens stand, and the cosines and sines of their positions.
  void set_rows() {
    work_.sequences.clear();
    std::int64_t first = 0;
    for (const StepRow& row : rows_) {
      work_.sequences.push_back({first, row.tokens, row.session->length(), nullptr, nullptr});
      first += row.tokens;
    }
    work_.turns.resize(rows_.front().session->ropes().size());
    for (std::size_t rope = 0; rope < work_.turns.size(); ++rope) set_turns(rope, work_.turns[rope]);
  }

  void set_turns(std::size_t rope, TurnsView& turns) {
    turns.cosines.clear();
    turns.sines.clear();
    turns.tables.clear();
    for (const StepRow& row : rows_) {
      std::int64_t first = row.session->length();
      const std::int64_t end = first + row.tokens;
      const RotaryTables& tables = *row.session->ropes()[rope];
      std::shared_ptr<const RotaryRows> table;
      if (row.session->is_rope_fixed(rope, end)) {
        table = tables.rows(end);
      } else {
        const std::int64_t length = std::max(end, row.session->expected());
        table = std::make_shared<const RotaryRows>(tables.rows(first, row.tokens, length));
        first = 0;
      }
      turns.pairs = table->pairs;
      turns.cosines.push_back(table->cosines.data() + first * turns.pairs);
      turns.sines.push_back(table->sines.data() + first * turns.pairs);
      turns.tables.push_back(std::move(table));
    }
  }

  void embed(std::span<const std::int64_t> ids) {
    const WorkScope work(WorkKind::kEmbedding, [&] { return cost_of_rows(model_.embedding, count_); });
    const float scale = model_.embedding_scale;
    float* row = stream_;
    for (const std::int64_t id : ids) {
      quant::dequantize(model_.embedding, id, id + 1, reinterpret_cast<std::byte*>(row), Dtype::kFloat32);
      for (std::int64_t column = 0; scale != 1.0f && column < hidden_; ++column) row[column] *= scale;
      row += hidden_;
    }
  }

  // Adds what waits to the stream, and writes its norm for `next` to multiply, as float32 where that is asked for.
  void normalise(const quant::Norm& norm, const ProductsView* next, float* normalised) {
    const WorkScope work(WorkKind::kNorms);
    quant::ResidualNorm a{};
    a.rows = count_;
    a.size = hidden_;
    a.stream = stream_;
    a.base = base_;
    a.delta = delta_;
    a.delta_norm = delta_norm_;
    a.delta_scale = delta_scale_;
    a.norm = norm;
    a.normalised = normalised;
    if (next) {
      a.output_dtype = next->operand;
      a.output = work_.operand.at_least(bytes_of_values(count_ * hidden_, next->operand));
    }
    quant::residual_norm(a);
  }

  void wait(const float* delta, const quant::Norm& norm, const LayerView& layer) {
    delta_ = delta;
    delta_norm_ = norm;
    delta_scale_ = layer.residual_scale;
    base_ = layer.is_residual_normalised ? normalised_ : stream_;
  }

  // The results are in `outputs`, one a product. `next`: what is multiplied after them; null: it is not known.
  void multiply(ProductsView& view, const std::byte* input, Buffer* outputs, const ProductsView* next) {
    fetch_next(next, count_);
    cpu::multiply(view, input, count_, work_.reordered, outputs);
  }

  void layer(std::size_t index) {
    LayerView& view = model_.layers[index];
    const bool is_kept = view.is_parallel || view.is_residual_normalised;
    const bool has_modules = !view.mlp || !view.attention;
    normalised_ = is_kept || has_modules ? work_.normalised.floats(count_ * hidden_) : nullptr;
    normalise(view.input_norm, view.attention ? &view.attention->inputs : nullptr,
              is_kept || !view.attention ? normalised_ : nullptr);
    if (view.attention)
      attend(*view.attention, view.mlp ? &view.mlp->gate_up : nullptr);
    else
      modules_->mix(index, normalised_, work_.delta.floats(count_ * hidden_));
    wait(whole(view.attention_group), view.attention_output_norm, view);
    if (view.is_parallel)
      add_beside(view);
    else
      normalise(view.mlp_norm, view.mlp ? &view.mlp->gate_up : nullptr, is_kept || !view.mlp ? normalised_ : nullptr);
    if (view.mlp)
      feed_forward(*view.mlp, first_of(index + 1));
    else if (!view.experts)
      modules_->feed_forward(index, normalised_, work_.delta, first_of(index + 1));
    else if (!run_experts(*view.experts, normalised_, count_, work_.experts, work_.delta, first_of(index + 1)))
      throw Error(ErrorCode::kContract, "experts of a layer differ in what they take and give");
    wait(whole(view.mlp_group), view.mlp_output_norm, view);
    if (view.has_more) complete(index);
  }

  // Adds what waits to the stream, and does the rest of the layer there.
  void complete(std::size_t index) {
    normalise({}, nullptr, nullptr);
    delta_ = nullptr;
    base_ = stream_;
    modules_->complete(index, stream_);
  }

  // Adds what waits to the stream, and has the MLP read what the attention has read.
  void add_beside(const LayerView& view) {
    normalise({}, nullptr, nullptr);
    if (!view.mlp) return;
    const Dtype dtype = view.mlp->gate_up.operand;
    std::byte* const operand = work_.operand.at_least(bytes_of_values(count_ * hidden_, dtype));
    quant::convert(reinterpret_cast<const std::byte*>(normalised_), Dtype::kFloat32, operand, dtype, count_ * hidden_);
  }

  // Where queries, keys and values stand in what the projections gave.
  std::array<quant::HeadRows, 3> heads_of(const AttentionSettings& a) {
    const std::int64_t d = a.head_dim, queries = a.heads * d, keys = a.kv_heads * d;
    const std::int64_t gated = a.has_output_gate ? 2 : 1;
    const float* first = work_.products[0].floats(0);
    switch (a.layout) {
      case QkvLayout::kSeparate: {
        const float* const key = work_.products[1].floats(0);
        const float* const value = a.are_values_keys ? key : work_.products[2].floats(0);
        return {{{first, gated * queries, gated * d}, {key, keys, d}, {value, keys, d}}};
      }
      case QkvLayout::kFused: {
        const std::int64_t all = queries + 2 * keys;
        return {{{first, all, d}, {first + queries, all, d}, {first + queries + keys, all, d}}};
      }
      case QkvLayout::kFusedPerHead:
        break;
    }
    return {{{first, 3 * queries, 3 * d}, {first + d, 3 * queries, 3 * d}, {first + 2 * d, 3 * queries, 3 * d}}};
  }

  // What a layer multiplies first; null: nothing of its own, or there is no such layer.
  const ProductsView* first_of(std::size_t index) const {
    if (index == model_.layers.size() || !model_.layers[index].attention) return nullptr;
    return &model_.layers[index].attention->inputs;
  }

  void attend(AttentionView& view, const ProductsView* next) {
    multiply(view.inputs, work_.operand.at_least(0), work_.products, &view.output);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      auto& cache = rows_[i].session->state<KeyBlocks>(view.settings.keys_of);
      quant::SequenceBlocks& sequence = work_.sequences[i];
      if (view.settings.has_own_keys()) cache.make_room(sequence.past, sequence.tokens);
      sequence.keys = cache.key_blocks();
      sequence.values = cache.value_blocks();
    }
    place(view);
    multiply(view.output, attended(view), &work_.delta, next);
  }

  // What placing heads and attending have in common: the tokens, the heads, and the cache.
  template <class Call>
  Call over_cache(const AttentionSettings& settings) {
    Call a{};
    a.sequences = work_.sequences.data();
    a.count = static_cast<std::int64_t>(work_.sequences.size());
    a.heads = settings.heads;
    a.kv_heads = settings.kv_heads;
    a.head_dim = settings.head_dim;
    a.query_dtype = a.key_dtype = a.value_dtype = model_.operand;
    if (model_.key_values == KeyValues::kInt8) a.key_dtype = a.value_dtype = Dtype::kInt8;
    return a;
  }

  void place(const AttentionView& view) {
    const WorkScope work(WorkKind::kPlaceHeads);
    const AttentionSettings& set = view.settings;
    const auto [query, key, value] = heads_of(set);
    auto a = over_cache<quant::PlaceHeads>(set);
    if (!set.has_own_keys()) a.kv_heads = 0;
    a.query = query;
    a.key = key;
    a.value = value;
    a.query_norm = view.query_norm;
    a.key_norm = view.key_norm;
    a.value_norm = view.value_norm;
    a.growth = static_cast<float>(set.growth.beta);
    a.growth_length = set.growth.length;
    a.growth_shift = set.growth.shift;
    a.norm = kHeadNorms[static_cast<std::size_t>(set.norm)];
    const bool turns_heads = set.rope != kNoRope;
    const TurnsView& turns = work_.turns[turns_heads ? set.rope : 0];
    a.pairs = turns_heads ? turns.pairs : 0;
    a.is_interleaved = set.is_interleaved;
    a.cosines = turns.cosines.data();
    a.sines = turns.sines.data();
    a.queries = work_.queries.at_least(bytes_of_values(count_ * a.heads * a.head_dim, a.query_dtype));
    if (!quant::place_heads(a)) rows_.front().session->note_not_finite();
  }

  const std::byte* attended(const AttentionView& view) {
    const AttentionSettings& set = view.settings;
    auto a = over_cache<quant::Attend>(set);
    a.scale = static_cast<float>(set.scale);
    a.softcap = static_cast<float>(set.softcap);
    a.window = set.reach.window;
    a.is_chunked = set.reach.is_chunked;
    a.sinks = view.sinks.empty() ? nullptr : view.sinks.data();
    a.queries = work_.queries.at_least(0);
    const std::int64_t values_of_all = count_ * a.heads * a.head_dim;
    std::byte* const output = work_.operand.at_least(bytes_of_values(values_of_all, view.output.operand));
    a.output_dtype = set.has_output_gate ? Dtype::kFloat32 : view.output.operand;
    // The products of keys stand in the cache by now.
    a.output = set.has_output_gate ? reinterpret_cast<std::byte*>(work_.products[1].floats(values_of_all)) : output;
    attend_in_slices(a);
    if (set.has_output_gate) gate(set, view.output.operand, output);
    return output;
  }

  // What the heads gave, times the sigmoid of the gates beside their queries.
  void gate(const AttentionSettings& set, Dtype dtype, std::byte* output) {
    const WorkScope work(WorkKind::kGates);
    quant::GateRows a{};
    a.gate = quant::Gate::kSigmoid;
    a.rows = count_ * set.heads;
    a.size = a.up_stride = set.head_dim;
    a.stride = 2 * a.size;
    a.x = work_.products[0].floats(0) + a.size;
    a.up = work_.products[1].floats(0);
    a.output_dtype = dtype;
    a.output = output;
    quant::gate_rows(a);
  }

  // A sequence's tokens some at a time where they look far back.
  void attend_in_slices(quant::Attend a) {
    const WorkScope work(WorkKind::kAttention, [&] { return cost_of(a); });
    PassWatch::check();
    const auto step_of = [&](const quant::SequenceBlocks& row) {
      return rows_between_looks(row.tokens, 2 * a.heads * a.head_dim * (row.past + row.tokens));
    };
    if (std::ranges::all_of(work_.sequences, [&](const auto& row) { return step_of(row) >= row.tokens; }))
      return quant::attend(a);
    for (const quant::SequenceBlocks& row : work_.sequences) {
      const std::int64_t step = step_of(row);
      for (std::int64_t begin = 0; begin < row.tokens; begin += step) {
        PassWatch::check();
        quant::SequenceBlocks slice = row;
        slice.first += begin;
        slice.past += begin;
        slice.tokens = std::min(step, row.tokens - begin);
        a.sequences = &slice;
        a.count = 1;
        quant::attend(a);
      }
    }
  }

  void feed_forward(MlpView& view, const ProductsView* next) {
    fetch_next(&view.down, count_);
    multiply(view.down, multiply_gated(view, work_.operand.at_least(0), count_, work_), &work_.delta, next);
  }

  // What waits, once the parts of all ranks are added.
  const float* whole(Group* group) {
    float* const out = work_.delta.floats(0);
    if (!group) return out;
    const WorkScope work(WorkKind::kRankSums);
    group->sum({out, static_cast<std::size_t>(count_ * hidden_)});
    return out;
  }

  Workspace& work_;
  ModelView& model_;
  std::span<const StepRow> rows_;
  ModuleParts* modules_;  // null: there are none
  std::int64_t hidden_;
  std::int64_t count_;  // tokens of all rows
  float* stream_ = nullptr;
  float* normalised_ = nullptr;  // null: nobody reads it
  const float* base_ = nullptr;  // what `delta_` is added to
  const float* delta_ = nullptr;
  quant::Norm delta_norm_;
  float delta_scale_ = 1.0f;
};

}  // namespace

void forward(Workspace& workspace, const PassInput& input, ModuleParts* modules, float* out) {
  Forward(workspace, input, modules).run(out);
}

}  // namespace halfbyte::models::cpu
