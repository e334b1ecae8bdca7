//! Links, queues, a switch, faults, captures.
