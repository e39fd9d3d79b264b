// Test bench of line_hadamard: see groups.h.
#include "groups.h"

#include "Vline_hadamard.h"

int main(int argc, char** argv) { return run_groups<Vline_hadamard>(argc, argv); }
