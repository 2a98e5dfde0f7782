// Norms, rotary and gates for avx2.
#define HALFBYTE_LEVEL avx2
#define HALFBYTE_ACTIVATIONS kAvx2Activations
#include "quant/kernels/activations.inc"
