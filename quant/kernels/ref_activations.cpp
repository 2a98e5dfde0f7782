// Norms, rotary and gates for ref.
#define HALFBYTE_LEVEL ref
#define HALFBYTE_ACTIVATIONS kRefActivations
#include "quant/kernels/activations.inc"
