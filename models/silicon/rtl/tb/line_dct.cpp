// Test bench of line_dct: see groups.h.
#include "groups.h"

#include "Vline_dct.h"

int main(int argc, char** argv) { return run_groups<Vline_dct>(argc, argv); }
