// Norms, rotary and gates for avx512.
#define HALFBYTE_LEVEL avx512
#define HALFBYTE_ACTIVATIONS kAvx512Activations
#include "quant/kernels/activations.inc"
