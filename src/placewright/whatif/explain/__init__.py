"""Why a plan has something where it has it: what other places would cost, and what forbids them."""
