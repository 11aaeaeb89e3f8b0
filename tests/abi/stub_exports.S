// The exports whose signature the table does not know. Weak, so that those it knows override them.
  .macro unknown symbol
  .weak \symbol
  .type \symbol, @function
\symbol:
  .endm

  .text
#define SLUICE_EXPORT(symbol) unknown symbol
#include "sluice/cuda_abi/exports.inc"
  endbr64
  movl $801, %eax  // CUDA_ERROR_NOT_SUPPORTED
  ret

  .section .note.GNU-stack, "", @progbits
